package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is the database of a test.
type store struct {
	mu     sync.Mutex
	counts map[arroyo.Partition]map[int64]Counts // by the first offset
	stored []string                              // when, since began, and of what
	began  time.Time
}

func newStore() *store {
	return &store{counts: make(map[arroyo.Partition]map[int64]Counts), began: time.Now()}
}

func (s *store) replace(_ context.Context, p arroyo.Partition, first int64, counts Counts) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.counts[p]
	if of == nil {
		of = make(map[int64]Counts)
		s.counts[p] = of
	}
	maps.DeleteFunc(of, func(other int64, _ Counts) bool { return other >= first })
	of[first] = maps.Clone(counts)
	n := 0
	for _, views := range counts {
		n += views
	}
	at := time.Since(s.began).Round(time.Second)
	s.stored = append(s.stored, fmt.Sprintf("%v: %d views of %v", at, n, p))
	return nil
}

// total sums up what is stored.
func (s *store) total() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := make(Counts)
	for _, of := range s.counts {
		for _, counts := range of {
			for page, views := range counts {
				total[page] += views
			}
		}
	}
	return total
}

func (s *store) times() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored
}

func newBroker(t *testing.T) *memkafka.Broker {
	return memkafka.New(t, memkafka.Topic("views", 2), memkafka.Topic("views.dead", 1))
}

func start(t *testing.T, host *memkafka.Host, s *store) (stop func() error) {
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, s.replace, host.ClientOptions()...) })
}

// view produces n views to a partition, of three pages in turns.
func view(broker *memkafka.Broker, partition int32, n int) {
	var records []*kgo.Record
	for i := range n {
		value := fmt.Appendf(nil, `{"page":"/%d"}`, i%3)
		records = append(records, &kgo.Record{Topic: "views", Partition: partition, Value: value})
	}
	broker.ProduceRecords(records...)
}

// The sums of a partition are stored ten seconds after the first view that is in
// them, and at the end.
func TestEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newStore()
		stop := start(t, broker.Host(), s)
		broker.WaitStable("views", 1)
		view(broker, 0, 30)
		time.Sleep(4 * time.Second)
		view(broker, 1, 6)
		view(broker, 0, 30)
		time.Sleep(12 * time.Second) // 16 s
		view(broker, 0, 3)
		time.Sleep(4 * time.Second)
		if at := broker.Committed("views", "views")[0]; at != 60 {
			t.Errorf("committed %d, want 60: the last three are not stored", at)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		want := []string{
			"10s: 60 views of views/0",
			"14s: 6 views of views/1",
			"20s: 3 views of views/0",
		}
		if diff := cmp.Diff(want, s.times()); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(Counts{"/0": 23, "/1": 23, "/2": 23}, s.total()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

// A partition that goes to another member takes its sums along, at once.
func TestAnotherMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newStore()
		first := start(t, broker.Host(), s)
		broker.WaitStable("views", 1)
		view(broker, 0, 30)
		view(broker, 1, 30)
		time.Sleep(time.Second)
		second := start(t, broker.Host(), s)
		broker.WaitStable("views", 2)
		if took := time.Since(s.began); took > 9*time.Second || len(s.times()) != 1 {
			t.Errorf("after %v it is stored: %q, want the sums of one partition", took, s.times())
		}
		view(broker, 0, 30)
		view(broker, 1, 30)
		for _, stop := range []func() error{first, second} {
			time.Sleep(time.Second)
			if err := stop(); err != nil {
				t.Errorf("run: %v", err)
			}
		}
		if diff := cmp.Diff(Counts{"/0": 40, "/1": 40, "/2": 40}, s.total()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

// A member crashes when it has stored sums, twice, and their views are not
// committed. The next one adds up the same views in another way, and none is
// counted twice.
func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newStore()
		host := broker.Host()
		start(t, host, s)
		broker.WaitStable("views", 1)
		view(broker, 0, 3)
		broker.WaitCommitted("views", "views", 3)
		fault := broker.Fail(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress)
		for range 2 {
			view(broker, 0, 30)
			time.Sleep(12 * time.Second)
		}
		host.BlackHole()
		fault.Heal()
		if diff := cmp.Diff(Counts{"/0": 21, "/1": 21, "/2": 21}, s.total()); diff != "" {
			t.Fatalf("counts before the crash (-want +got):\n%s", diff)
		}
		if at := broker.Committed("views", "views")[0]; at != 3 {
			t.Fatalf("committed %d, want 3", at)
		}

		view(broker, 0, 30)
		stop := start(t, broker.Host(), s)
		time.Sleep(time.Minute) // the session of the first is over
		broker.WaitCaughtUp("views", "views")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if diff := cmp.Diff(Counts{"/0": 31, "/1": 31, "/2": 31}, s.total()); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if n := len(s.counts[arroyo.Partition{Topic: "views"}]); n != 2 {
			t.Errorf("the sums of the partition are in %d parts, want 2: the views committed before the crash, and all others", n)
		}
	})
}
