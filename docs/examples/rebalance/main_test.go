package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a ledger for tests, which several members share.
type ledger struct {
	mu      sync.Mutex
	written map[int]int // by ID, how often it came
}

func newLedger() *ledger { return &ledger{written: make(map[int]int)} }

// member is one member's way to the ledger.
type member struct {
	*ledger
	takes time.Duration // what it takes to write

	batches []int // their lengths
}

func (m *member) Write(_ context.Context, bookings []Booking) error {
	time.Sleep(m.takes) // whatever the context says: databases can be like that
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, len(bookings))
	for _, b := range bookings {
		m.written[b.ID]++
	}
	return nil
}

// expect checks that bookings 1 to last are written, and how many came twice.
func (l *ledger) expect(t *testing.T, last, twice int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := 1; id <= last; id++ {
		switch l.written[id] {
		case 0:
			t.Errorf("booking %d is lost", id)
		case 1:
		case 2:
			twice--
		default:
			t.Errorf("booking %d came %d times", id, l.written[id])
		}
	}
	if twice != 0 {
		t.Errorf("%d more bookings came twice than should have", -twice)
	}
}

func start(t *testing.T, host *memkafka.Host, m *member, p protocol) (stop func() error) {
	client := append(host.ClientOptions(), p.options()...)
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, m, client...) })
}

// book produces bookings with these IDs, around the partitions.
func book(broker *memkafka.Broker, first, last int) {
	var bookings []any
	for id := first; id <= last; id++ {
		bookings = append(bookings, Booking{ID: id, Account: "cash", Cents: 100})
	}
	broker.ProduceJSON("bookings", bookings...)
}

// protocol is how a group rebalances.
type protocol string

const (
	cooperative protocol = "cooperative" // the default: partitions that stay go on
	eager       protocol = "eager"       // all are given up, and assigned anew
	kip848      protocol = "KIP-848"     // the brokers assign
)

func (p protocol) options() []kgo.Opt {
	switch p {
	case eager:
		return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
	case kip848:
		return []kgo.Opt{kgo.ServerSideBalancer()}
	}
	return nil
}

// underEveryProtocol runs a test in a bubble for each of them.
func underEveryProtocol(t *testing.T, test func(*testing.T, protocol)) {
	for _, p := range []protocol{cooperative, eager, kip848} {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, p) })
		})
	}
}

// The batch is not full yet. It is not waited for: it is written as it is and
// committed, and then the new member gets its partitions. So nothing comes
// twice, and the new member begins with what came later.
func TestBatchIsNotFull(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, protocol protocol) {
		broker := memkafka.New(t, memkafka.Topic("bookings", 4))
		l := newLedger()
		first, second := &member{ledger: l}, &member{ledger: l}
		stopFirst := start(t, broker.Host(), first, protocol)
		broker.WaitStable("ledger", 1)
		book(broker, 1, 30)
		time.Sleep(5 * time.Second)
		l.expectNone(t)

		began := time.Now()
		stopSecond := start(t, broker.Host(), second, protocol)
		broker.WaitStable("ledger", 2)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the rebalance took %v: it waited for the batch", took)
		}
		l.expect(t, 30, 0)
		if len(second.batches) != 0 {
			t.Errorf("the new member wrote batches of %v, want none: what there was is committed", second.batches)
		}

		book(broker, 31, 60)
		time.Sleep(5 * time.Second)
		for _, stop := range []func() error{stopFirst, stopSecond} {
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
		l.expect(t, 60, 0)
		if len(second.batches) == 0 {
			t.Error("the new member wrote nothing")
		}
	})
}

func (l *ledger) expectNone(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.written); n != 0 {
		t.Fatalf("%d bookings are written, want none yet", n)
	}
}

// The batch is being written, which takes 15 seconds. The rebalance waits for
// that, and the new member gets none of its rows. What is behind the batch and
// was not begun is left: of the partitions that go, the new member writes it.
func TestBatchIsBeingWritten(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, protocol protocol) {
		broker := memkafka.New(t, memkafka.Topic("bookings", 4))
		l := newLedger()
		first, second := &member{ledger: l, takes: 15 * time.Second}, &member{ledger: l}
		stopFirst := start(t, broker.Host(), first, protocol)
		broker.WaitStable("ledger", 1)
		began := time.Now()
		book(broker, 1, 100)
		time.Sleep(time.Second)
		book(broker, 101, 150)

		stopSecond := start(t, broker.Host(), second, protocol)
		broker.WaitStable("ledger", 2)
		if took := time.Since(began); took < 15*time.Second {
			t.Errorf("the new member had partitions after %v, before the batch was written", took)
		}
		time.Sleep(time.Minute)
		for _, stop := range []func() error{stopFirst, stopSecond} {
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
		l.expect(t, 150, 0)
		if len(second.batches) == 0 {
			t.Error("the new member wrote nothing")
		}
	})
}

// Writing takes longer than the group waits. At the deadline the partitions go
// on without this member, and their new owner writes the rows again: they come
// twice, which the ledger has to bear, and none is lost.
func TestWriteTakesTooLong(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, protocol protocol) {
		broker := memkafka.New(t, memkafka.Topic("bookings", 4))
		l := newLedger()
		first, second := &member{ledger: l, takes: 2 * time.Minute}, &member{ledger: l}
		stopFirst := start(t, broker.Host(), first, protocol)
		broker.WaitStable("ledger", 1)
		book(broker, 1, 100)
		time.Sleep(time.Second)

		began := time.Now()
		stopSecond := start(t, broker.Host(), second, protocol)
		broker.WaitStable("ledger", 2)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the rebalance took %v, want no more than the deadline", took)
		}
		time.Sleep(5 * time.Minute)
		for _, stop := range []func() error{stopFirst, stopSecond} {
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
		again := 50 // of the two partitions that went
		if protocol == eager {
			again = 100 // the others were given up, too, and came back
		}
		l.expect(t, 100, again)
	})
}

// The member is cut off with a batch that is not full, and is lost. Others own
// its partitions now, so the batch is not written by it any more.
func TestMemberIsLost(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, protocol protocol) {
		broker := memkafka.New(t, memkafka.Topic("bookings", 4))
		host := broker.Host()
		l := newLedger()
		first, second := &member{ledger: l}, &member{ledger: l}
		stopFirst := start(t, host, first, protocol)
		broker.WaitStable("ledger", 1)
		time.Sleep(2 * time.Minute)
		book(broker, 1, 30)
		time.Sleep(time.Second)
		host.BlackHole()
		stopSecond := start(t, broker.Host(), second, protocol)
		time.Sleep(3 * time.Minute)
		if err := stopSecond(); err != nil {
			t.Errorf("run: %v", err)
		}
		if err := stopFirst(); err != nil && !errors.Is(err, arroyo.ErrAbandoned) {
			t.Errorf("run: %v", err)
		}
		l.expect(t, 30, 0)
		if len(first.batches) != 0 {
			t.Errorf("the member that was lost wrote batches of %v", first.batches)
		}
	})
}
