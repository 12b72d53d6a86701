package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// books is the shop of a test.
type books struct {
	bankTakes time.Duration // for a payment
	bankFails error

	mu       sync.Mutex
	orders   []Order
	payments []Payment
	refunds  []Refund
}

func (b *books) StoreOrders(_ context.Context, orders []Order) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders = append(b.orders, orders...)
	return nil
}

func (b *books) Book(ctx context.Context, p Payment) error {
	select {
	case <-time.After(b.bankTakes):
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.bankFails != nil {
		return b.bankFails
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.payments = append(b.payments, p)
	return nil
}

func (b *books) PayBack(_ context.Context, r Refund) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refunds = append(b.refunds, r)
	return nil
}

func (b *books) counts() (orders, payments, refunds int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.orders), len(b.payments), len(b.refunds)
}

func newBroker(t *testing.T) *memkafka.Broker {
	return memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("events.dead", 1))
}

func start(t *testing.T, broker *memkafka.Broker, shop Shop) (stop func() error) {
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, shop, broker.ClientOptions()...) })
}

func send(broker *memkafka.Broker, kind, value string) {
	r := &kgo.Record{Topic: "events", Value: []byte(value)}
	if kind != "" {
		r.Headers = []kgo.RecordHeader{{Key: "kind", Value: []byte(kind)}}
	}
	broker.ProduceRecords(r)
}

// Each kind takes its own way, in order; what has no way, or is not what it
// says, is a dead letter.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		for _, event := range [][2]string{
			{"order", `{"id":"1","customer":"ada"}`},
			{"payment", `{"order":"1","cents":350}`},
			{"refund", "1 350"},
			{"order", `{"id":"2","customer":"test","test":true}`},
			{"order", `{"id":"3","customer":"bob"}`},
			{"payment", `{"order":"3","cents":700}`},
			{"voucher", `{"id":"4"}`},
			{"", `{"id":"5"}`},
			{"payment", "3 700"},
			{"refund", "3 much"},
		} {
			send(broker, event[0], event[1])
		}
		var shop books
		stop := start(t, broker, &shop)
		broker.WaitCaughtUp("shop", "events")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}

		if diff := cmp.Diff([]Order{{ID: "1", Customer: "ada"}, {ID: "3", Customer: "bob"}}, shop.orders); diff != "" {
			t.Errorf("orders (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Payment{{"1", 350}, {"3", 700}}, shop.payments); diff != "" {
			t.Errorf("payments (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Refund{{"1", 350}}, shop.refunds); diff != "" {
			t.Errorf("refunds (-want +got):\n%s", diff)
		}
		reasons := map[string]string{
			`{"id":"4"}`: `"voucher"`,
			`{"id":"5"}`: `no header "kind"`,
			"3 700":      "invalid character",
			"3 much":     "the amount",
		}
		dead := broker.Records("events.dead")
		if len(dead) != len(reasons) {
			t.Errorf("%d dead letters, want %d", len(dead), len(reasons))
		}
		for _, r := range dead {
			original, origin, err := arroyo.ReadDeadLetter(r)
			if err != nil {
				t.Fatal(err)
			}
			want, ok := reasons[string(original.Value)]
			if !ok || !strings.Contains(origin.Reason, want) {
				t.Errorf("%s is a dead letter because of %q, want %q", original.Value, origin.Reason, want)
			}
		}
	})
}

// A bank that takes a second for each payment holds up neither orders nor
// refunds; what is in its queue at the end is booked.
func TestSlowBank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		shop := books{bankTakes: time.Second}
		stop := start(t, broker, &shop)
		broker.WaitStable("shop", 1)
		for i := range 15 {
			send(broker, "payment", fmt.Sprintf(`{"order":"%d","cents":1}`, i))
			send(broker, "order", fmt.Sprintf(`{"id":"%d"}`, i))
			send(broker, "refund", fmt.Sprintf("%d 1", i))
		}
		time.Sleep(2500 * time.Millisecond)
		if orders, payments, refunds := shop.counts(); orders != 15 || payments != 2 || refunds != 15 {
			t.Errorf("%d orders, %d payments, %d refunds, want 15, 2, 15", orders, payments, refunds)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if n := len(shop.payments); n != 15 {
			t.Errorf("%d payments are booked, want 15", n)
		}
		if at := broker.Committed("shop", "events")[0]; at != 45 {
			t.Errorf("committed %d, want 45", at)
		}
	})
}

// An error says in which branch it was.
func TestBankFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		send(broker, "order", `{"id":"1"}`)
		send(broker, "payment", `{"order":"1","cents":350}`)
		stop := start(t, broker, &books{bankFails: errors.New("no such account")})
		time.Sleep(time.Minute)
		err := stop()
		at, ok := errors.AsType[*arroyo.StepError](err)
		if !ok || at.Step != "RouteByHeader(kind)/payment/book" || at.Offset != 1 || !strings.Contains(err.Error(), "no such account") {
			t.Errorf("run: %v, want that payment/book failed at offset 1", err)
		}
		if offset := broker.Committed("shop", "events")[0]; offset > 1 {
			t.Errorf("committed %d, want no more than 1: the payment is not booked", offset)
		}
	})
}
