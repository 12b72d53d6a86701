package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// I9, I10: what the pipeline writes to refuses for ten minutes: what is in
// flight stays within bounds, the group does not move, nothing is lost, and
// progress is made within a second of its recovery.
func TestI10DownstreamRefusesForTenMinutes(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var (
			ledger ledger
			down   atomic.Bool
		)
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				for down.Load() {
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				ledger.add("m", m.Payload)
				return nil
			})
		}, append(opts, kgo.FetchMaxPartitionBytes(2000)), arroyo.MaxInFlight(500))
		broker.WaitStable(group, 1)
		member := m.Status().Member
		stop := flow(t, broker, 4, 50*time.Millisecond)
		time.Sleep(10 * time.Second)
		down.Store(true)
		most := 0
		for range 600 {
			time.Sleep(time.Second)
			most = max(most, m.Status().InFlight)
		}
		if most < 400 || most > 1700 { // the bound and a fetch of each partition
			t.Errorf("%d records were in flight, want the bound of 500 and a fetch more", most)
		}
		down.Store(false)
		before := len(ledger.all())
		time.Sleep(time.Second)
		if n := len(ledger.all()) - before; n < 80 {
			t.Errorf("%d records were done in the second after the recovery", n)
		}
		stop()
		broker.WaitCaughtUp(group, topic)
		if s := m.Status(); s.Member != member || s.Abandoned != 0 {
			t.Errorf("the member is %s, was %s; %d abandoned", s.Member, member, s.Abandoned)
		}
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// untilFull is a window that ends once it has so many messages.
type untilFull struct{ left int }

func (w *untilFull) Add(context.Context, arroyo.Message[*kgo.Record]) error { w.left--; return nil }
func (w *untilFull) Ready() bool                                            { return w.left <= 0 }
func (w *untilFull) Result() (int, bool)                                    { return 0, true }

// Steps that hold back more than may be in flight are flushed, and counted: a
// batch, a reduction, a window of the user's own, an interval.
func TestFlushAtTheBound(t *testing.T) {
	for _, tt := range []struct {
		name string
		step func(batches *atomic.Int64) arroyo.Strategy[*kgo.Record]
	}{
		{"batch", func(batches *atomic.Int64) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(10_000, time.Hour, func(context.Context, []arroyo.Message[*kgo.Record]) error {
				batches.Add(1)
				return nil
			})
		}},
		{"reduction", func(batches *atomic.Int64) arroyo.Strategy[*kgo.Record] {
			return strategies.Reduce(10_000, time.Hour, func() int { return 0 }, func(sum int, m arroyo.Message[*kgo.Record]) (int, error) {
				return sum + len(m.Payload.Value), nil
			}, strategies.ForEach(counts[int](batches)))
		}},
		{"window", func(batches *atomic.Int64) arroyo.Strategy[*kgo.Record] {
			return strategies.Accumulate(time.Hour, func() *untilFull { return &untilFull{10_000} }, strategies.ForEach(counts[int](batches)))
		}},
		{"interval", func(batches *atomic.Int64) arroyo.Strategy[*kgo.Record] {
			return strategies.Interval(time.Hour, strategies.ForEach(counts[strategies.Span](batches)))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				var batches atomic.Int64
				m := start(t, broker, func() arroyo.Strategy[*kgo.Record] { return tt.step(&batches) },
					append(opts, kgo.FetchMaxPartitionBytes(3000)), arroyo.MaxInFlight(5000))
				broker.WaitStable(group, 1)
				began := time.Now()
				for range 100 {
					produce(broker, 200)
				}
				broker.WaitCommitted(group, topic, 14_000)
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if s := m.Status(); s.BoundFlushes < 3 || s.BoundFlushes != batches.Load() {
					t.Errorf("%d flushes at the bound, %d batches; want as many, at least 3", s.BoundFlushes, batches.Load())
				}
				m.shutDown(t)
			})
		})
	}
}

// I10: a full lane that has a lot queued is not looked after at each record
// that is settled. When its steps then hold all of it back, that is seen at
// once.
func TestI10FullWithMuchQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 20_000)
		var (
			first   sync.Once
			batched atomic.Int64
		)
		m := startMember(t, broker, strategies.RunTask(func(context.Context, arroyo.Message[*kgo.Record]) (int, error) {
			first.Do(func() { time.Sleep(10 * time.Second) }) // meanwhile the lane fills up
			return 0, nil
		}, strategies.ForEachBatch(100_000, time.Hour, func(_ context.Context, rows []arroyo.Message[int]) error {
			batched.Add(int64(len(rows)))
			return nil
		})), nil, arroyo.MaxInFlight(6000), arroyo.CommitInterval(time.Hour))
		time.Sleep(9900 * time.Millisecond)
		if n := m.Status().InFlight; n < 6000 {
			t.Errorf("%d records are in flight, want the bound of 6,000", n)
		}
		time.Sleep(200 * time.Millisecond)
		if n := batched.Load(); n < 14_000 {
			t.Errorf("%d records were in batches by then, want all but what is below the bound", n)
		}
		m.shutDown(t)
	})
}

func counts[T any](n *atomic.Int64) func(context.Context, arroyo.Message[T]) error {
	return func(context.Context, arroyo.Message[T]) error {
		n.Add(1)
		return nil
	}
}

// A revoke that comes while the lane is full and blocked is seen at once.
func TestRevokeWhileTheLaneIsFull(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var ledger ledger
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				// Blocks until its drain begins.
				select {
				case <-arroyo.Draining(ctx):
				case <-ctx.Done():
				}
				ledger.add("m", m.Payload)
				return nil
			})
		}, append(opts, kgo.FetchMaxPartitionBytes(1000)), arroyo.MaxInFlight(100))
		broker.WaitStable(group, 1)
		trickle(broker, 1200)
		time.Sleep(10 * time.Second)
		if s := m.Status(); s.InFlight < 100 {
			t.Fatalf("%d records are in flight, want the lanes to be full", s.InFlight)
		}
		rival := broker.Join(group, topic, opts...)
		joined := time.Now()
		for len(rival.Assigned()) == 0 {
			time.Sleep(100 * time.Millisecond)
			if time.Since(joined) > 12*time.Second { // two heartbeats of KIP-848, and time to spare
				t.Fatalf("the rival has nothing after %v", time.Since(joined))
			}
		}
		m.shutDown(t)
	})
}

// A quiet pipeline commits its last record without waiting for another, and
// idle partitions' offsets are committed again, so that they do not expire.
func TestIdleOffsetsAreKeptAlive(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var (
			mu   sync.Mutex
			last = make(map[int32]time.Time)
			gap  time.Duration
		)
		broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			broker.Cluster().KeepControl()
			mu.Lock()
			defer mu.Unlock()
			for _, rt := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, rp := range rt.Partitions {
					if before, ok := last[rp.Partition]; ok {
						gap = max(gap, time.Since(before))
					}
					last[rp.Partition] = time.Now()
				}
			}
			return nil, nil, false
		})
		var ledger ledger
		m := start(t, broker, ledger.pipeline("m"), append(opts, kgo.FetchMaxWait(30*time.Second)))
		broker.WaitStable(group, 1)
		broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: 0, Value: []byte("one")})
		began := time.Now()
		broker.WaitCommitted(group, topic, 1)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("the only record was committed after %v", took)
		}
		time.Sleep(3 * time.Hour)
		mu.Lock()
		if gap > 61*time.Minute || len(last) != 2 || time.Since(last[0]) > 61*time.Minute || time.Since(last[1]) > 61*time.Minute {
			t.Errorf("between two commits of a partition were up to %v, and since the last one %v and %v", gap, time.Since(last[0]), time.Since(last[1]))
		}
		mu.Unlock()
		if diff := cmp.Diff(map[int32]int64{0: 1, 1: 0}, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed (-want +got):\n%s", diff)
		}
		m.shutDown(t)
	})
}

// CommitEvery commits after so many records, without the interval.
func TestCommitEvery(t *testing.T) {
	for _, every := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				var ledger ledger
				m := start(t, broker, ledger.slowPipeline("m", 100*time.Millisecond), opts, arroyo.CommitInterval(time.Hour), arroyo.CommitEvery(every))
				broker.WaitStable(group, 1)
				produce(broker, 300)
				began := time.Now()
				broker.WaitCommitted(group, topic, 200)
				took := time.Since(began)
				// Counted in runs of up to 64 records.
				if least, most := 20*time.Second, 20*time.Second+time.Duration(every+10)*100*time.Millisecond; took < least || took > most {
					t.Errorf("200 records of 100 ms were committed after %v, want %v to %v", took, least, most)
				}
				m.shutDown(t)
			})
		})
	}
}

// CommitEvery counts the records of all partitions together.
func TestCommitEveryOverPartitions(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		m := start(t, broker, ledger.slowPipeline("m", 0), opts, arroyo.CommitInterval(time.Hour), arroyo.CommitEvery(100))
		broker.WaitStable(group, 1)
		produce(broker, 100) // 25 in each
		broker.WaitCommitted(group, topic, 100)
		m.shutDown(t)
	})
}

// Abandon, or the cause ErrAbandoned, ends a run without waiting for the rest,
// also one that drains already. What is settled is committed.
func TestAbandon(t *testing.T) {
	for _, how := range []string{"at once", "while it drains", "by the cause", "before Run"} {
		t.Run(how, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produceTo(broker, 0, 10)
				var ledger ledger
				release := make(chan struct{})
				consumer := newConsumer(t, broker, opts...)
				processor, err := arroyo.NewProcessor(consumer, stuck(&ledger, "7", release), quiet)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				if how == "before Run" {
					processor.Abandon()
				}
				ended := make(chan error, 1)
				go func() { ended <- processor.Run(ctx) }()
				var began time.Time
				if how != "before Run" {
					// One after the other: which is fetched first is open.
					broker.WaitCommitted(group, topic, 10)
					produceTo(broker, 1, 10)
					broker.WaitCommitted(group, topic, 13)
				}
				switch began = time.Now(); how {
				case "at once":
					processor.Abandon()
				case "while it drains":
					cancel(nil)
					time.Sleep(5 * time.Second)
					began = time.Now()
					processor.Abandon()
				case "by the cause":
					cancel(fmt.Errorf("deployment: %w", arroyo.ErrAbandoned))
				}
				err = <-ended
				if took := time.Since(began); took > time.Second {
					t.Errorf("Run returned after %v", took)
				}
				if how == "before Run" {
					if err != nil {
						t.Errorf("Run: %v", err)
					}
				} else {
					var left *arroyo.AbandonedError
					if !errors.As(err, &left) || left.Records == 0 || left.Step != "insert" {
						t.Errorf("Run: %v; want an AbandonedError of step insert", err)
					}
					if diff := cmp.Diff(map[int32]int64{0: 10, 1: 3}, broker.Committed(group, topic)); diff != "" {
						t.Errorf("committed (-want +got):\n%s", diff)
					}
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members after Run", n)
				}
				close(release)
				cancel(nil)
			})
		})
	}
}

// Ten thousand partitions in one consumer: they are assigned, read, committed
// and drained, in both modes.
func TestTenThousandPartitions(t *testing.T) {
	const n = 10_000
	for _, mode := range []string{"shared", "partitioned"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, n))
				var done atomic.Int64
				pipeline := func() arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
						done.Add(1)
						return nil
					})
				}
				produce(broker, n)
				var m *member
				if mode == "shared" {
					m = startMember(t, broker, pipeline(), nil)
				} else {
					m = startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] { return pipeline() }, nil)
				}
				broker.WaitCommitted(group, topic, n)
				if s := m.Status(); len(s.Partitions) != n || s.InFlight != 0 {
					t.Errorf("%d partitions, %d records in flight", len(s.Partitions), s.InFlight)
				}
				m.shutDown(t)
				if done.Load() != n {
					t.Errorf("%d records are done, want %d", done.Load(), n)
				}
			})
		})
	}
}
