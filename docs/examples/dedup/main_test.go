package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is where deliveries go.
type desk struct {
	mu  sync.Mutex
	got []string
}

func (d *desk) handle(_ context.Context, delivery Delivery) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.got = append(d.got, delivery.ID)
	return nil
}

func start(t *testing.T, host *memkafka.Host, d *desk) (stop func() error) {
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, d.handle, host.ClientOptions()...) })
}

// deliver produces deliveries with these IDs, around the partitions.
func deliver(broker *memkafka.Broker, ids ...int) {
	var deliveries []any
	for _, id := range ids {
		deliveries = append(deliveries, Delivery{ID: fmt.Sprint(id), Text: "parcel"})
	}
	broker.ProduceJSON("deliveries", deliveries...)
}

func TestEachDeliveryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("deliveries", 1))
		var d desk
		stop := start(t, broker.Host(), &d)
		deliver(broker, 1, 2, 1, 3)
		time.Sleep(time.Minute)
		deliver(broker, 3, 2, 4, 4)
		broker.WaitCommitted("deliveries", "deliveries", 8)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if diff := cmp.Diff([]string{"1", "2", "3", "4"}, d.got); diff != "" {
			t.Errorf("handled (-want +got):\n%s", diff)
		}
	})
}

// It remembers the last 10,000, and no more.
func TestOldDeliveriesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("deliveries", 1))
		var d desk
		stop := start(t, broker.Host(), &d)
		ids := make([]int, 10_001)
		for i := range ids {
			ids[i] = i
		}
		deliver(broker, ids...)
		deliver(broker, 1, 0) // the one is remembered, the other is not
		broker.WaitCommitted("deliveries", "deliveries", 10_003)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if n := len(d.got); n != 10_002 || d.got[n-1] != "0" {
			t.Errorf("handled %d deliveries, the last one %s, want 10002 and 0", n, d.got[n-1])
		}
	})
}

// A member is cut off before it has committed what it has handled. When it comes
// back it reads that again, and must not take it for duplicates.
func TestMemberIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("deliveries", 2))
		host := broker.Host()
		var d desk
		stop := start(t, host, &d)
		broker.WaitStable("deliveries", 1)
		time.Sleep(time.Minute)
		deliver(broker, 1, 2, 3, 4)
		time.Sleep(time.Millisecond) // less than until the next commit
		synctest.Wait()
		host.BlackHole()
		time.Sleep(2 * time.Minute) // its session is over
		deliver(broker, 1, 2, 5, 6) // duplicates of the first two
		host.Heal()
		broker.WaitStable("deliveries", 1)
		broker.WaitCommitted("deliveries", "deliveries", 8)
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		slices.Sort(d.got)
		want := []string{"1", "1", "2", "2", "3", "3", "4", "4", "5", "6"}
		if diff := cmp.Diff(want, d.got); diff != "" {
			t.Errorf("handled, again after the cut (-want +got):\n%s", diff)
		}
	})
}
