package arroyo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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

// flow produces a record to each partition every interval until stop.
func flow(t *testing.T, broker *memkafka.Broker, partitions int, interval time.Duration) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var producing sync.WaitGroup
	producing.Go(func() {
		for ctx.Err() == nil {
			produce(broker, partitions)
			time.Sleep(interval)
		}
	})
	return func() { cancel(); producing.Wait() }
}

// trickle produces n records, round robin, a few at a time: a fetch returns
// whole batches.
func trickle(broker *memkafka.Broker, n int) {
	for range n / 60 {
		produce(broker, 60)
	}
}

// between counts the records of each partition that were seen in a time.
func (l *ledger) between(from, to time.Time) map[int32]int {
	n := make(map[int32]int)
	for _, s := range l.all() {
		if s.at.After(from) && !s.at.After(to) {
			n[s.partition]++
		}
	}
	return n
}

// While a slow task of a partition that is being given up finishes, the other
// partitions go on as before.
func TestOthersFlowDuringADrain(t *testing.T) {
	for _, p := range protocols {
		if p.name == "eager" {
			continue // it revokes everything
		}
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 8))
				var (
					ledger ledger
					began  atomic.Pointer[time.Time]
				)
				m := startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
						select {
						case <-time.After(12 * time.Millisecond):
						case <-arroyo.Draining(ctx): // the first one takes its time
							if now := time.Now(); began.CompareAndSwap(nil, &now) {
								time.Sleep(10 * time.Second)
							}
						}
						ledger.add("m", m.Payload)
						return nil
					})
				}, p.opts)
				broker.WaitStable(group, 1)
				stop := flow(t, broker, 8, 10*time.Millisecond)
				time.Sleep(5 * time.Second)
				rival := broker.Join(group, topic, p.opts...)
				if p.name == "cooperative" {
					rival.Take(7)
				}
				broker.WaitStable(group, 2)
				given := time.Now()
				stop()
				if began.Load() == nil || given.Sub(*began.Load()) < 10*time.Second {
					t.Fatal("the rival got its partitions before the slow task was done")
				}
				n := ledger.between(*began.Load(), began.Load().Add(10*time.Second))
				for other := range int32(8) {
					if !slices.Contains(rival.Assigned(), other) && n[other] < 820 {
						t.Errorf("partition %d had %d records in ten seconds of the drain, want 12 ms for each", other, n[other])
					}
				}
				rival.Leave()
				broker.WaitCaughtUp(group, topic)
				m.shutDown(t)
				ledger.expectAll(t, broker, 0)
				ledger.expectOrder(t)
			})
		})
	}
}

// A partition whose task blocks delays no other; its queue stays within its
// bound, and when it unblocks it goes on in order. Two partitions' tasks run at
// the same time.
func TestI9BlockedPartition(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 3))
		var (
			ledger  ledger
			release = make(chan struct{})
			inside  atomic.Int32
			both    atomic.Bool
		)
		m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				if inside.Add(1) > 1 {
					both.Store(true)
				}
				defer inside.Add(-1)
				if e.Number == 0 {
					<-release
				}
				time.Sleep(time.Millisecond)
				ledger.add("m", m.Payload)
				return nil
			})
		}, append(opts, kgo.FetchMaxPartitionBytes(2000)), arroyo.MaxPartitionInFlight(100))
		broker.WaitStable(group, 1)
		trickle(broker, 3000)
		time.Sleep(10 * time.Second)
		if diff := cmp.Diff(map[int32]int{1: 1000, 2: 1000}, ledger.between(time.Time{}, time.Now())); diff != "" {
			t.Errorf("records done of each partition (-want +got):\n%s", diff)
		}
		blocked := m.Status().Partitions[0]
		if blocked.State != arroyo.PartitionFull || blocked.InFlight < 100 || blocked.InFlight > 300 {
			t.Errorf("the blocked partition is %q with %d records in flight, want it full with 100 and at most a fetch more", blocked.State, blocked.InFlight)
		}
		if !both.Load() {
			t.Error("two partitions' tasks never ran at the same time")
		}
		close(release)
		broker.WaitCommitted(group, topic, 3000)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// The bound in bytes counts keys, values and headers, decompressed.
func TestI9BoundInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		release := make(chan struct{})
		m := startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
				<-release
				return nil
			})
		}, []kgo.Opt{kgo.FetchMaxPartitionBytes(10_000)}, arroyo.MaxPartitionInFlightBytes(100_000))
		broker.WaitStable(group, 1)
		for range 1000 {
			broker.ProduceRecords(&kgo.Record{
				Topic:   topic,
				Key:     make([]byte, 100),
				Value:   make([]byte, 800),
				Headers: []kgo.RecordHeader{{Key: "h", Value: make([]byte, 99)}},
			})
		}
		time.Sleep(time.Minute)
		s := m.Status()
		if s.InFlightBytes < 100_000 || s.InFlightBytes > 114_000 {
			t.Errorf("%d bytes are in flight, want 100,000 and at most a fetch more", s.InFlightBytes)
		}
		// Besides its bytes a record has fields and pointers, about 200 bytes.
		if each := s.InFlightBytes / int64(s.InFlight); each < 1150 || each > 1300 {
			t.Errorf("%d records with 1000 bytes each are in flight, and count %d each", s.InFlight, each)
		}
		close(release)
		broker.WaitCommitted(group, topic, 1000)
		m.shutDown(t)
	})
}

// I10: partitions that are stuck and fill the bound of all do not keep others
// from going on.
func TestI10StuckPartitionsFillTheBound(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 6))
		var ledger ledger
		release := make(chan struct{})
		m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				if e.Number < 4 {
					<-release
				}
				ledger.add("m", m.Payload)
				return nil
			})
		}, append(opts, kgo.FetchMaxPartitionBytes(1000)), arroyo.MaxInFlight(300))
		broker.WaitStable(group, 1)
		trickle(broker, 6000)
		time.Sleep(2 * time.Minute)
		if n := len(ledger.all()); n != 2000 {
			t.Errorf("%d records of the partitions that are not stuck are done, want all 2000", n)
		}
		if s := m.Status(); s.InFlight < 200 || s.InFlight > 600 {
			t.Errorf("%d records are in flight, want at most twice the bound of 300", s.InFlight)
		}
		close(release)
		broker.WaitCommitted(group, topic, 6000)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// One busy partition, slower than its input, beside an idle one on the same
// broker: pausing it does not cost it its throughput, although a partition that
// is resumed waits for the broker's answer about the idle one.
func TestI10BusyBesideIdle(t *testing.T) {
	for _, task := range []time.Duration{200 * time.Microsecond, 2 * time.Millisecond} {
		t.Run(task.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				all := int(10 * time.Second / task)
				batch := make([]*kgo.Record, all/200)
				for range 200 {
					for i := range batch {
						batch[i] = &kgo.Record{Topic: topic, Partition: 0, Value: []byte("0123456789")}
					}
					broker.ProduceRecords(batch...)
				}
				pauses := new(pauseCounter)
				m := startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
						time.Sleep(task)
						return nil
					})
				}, []kgo.Opt{kgo.FetchMaxPartitionBytes(1000)},
					arroyo.MaxPartitionInFlight(int(300*time.Millisecond/task)), arroyo.Hooks(pauses))
				began := time.Now()
				broker.WaitCaughtUp(group, topic)
				took := time.Since(began)
				if most := 12500*time.Millisecond + time.Second; took > most { // 0.8, and a commit interval
					t.Errorf("%d tasks of %v took %v, want at most %v", all, task, took, most)
				}
				if n := pauses.n.Load(); n < 3 {
					t.Errorf("the partition was paused %d times: this tests nothing", n)
				}
				m.shutDown(t)
			})
		})
	}
}

// pauseCounter counts the times that a partition was full.
type pauseCounter struct{ n atomic.Int64 }

func (c *pauseCounter) OnPaused(_ arroyo.Epoch, paused bool) {
	if paused {
		c.n.Add(1)
	}
}

// I12: a partition that comes back while user code of its assignment before is
// stuck waits for it, and flows when that has returned.
func TestI12RegainedPartitionWaitsForItsOldLane(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		var ledger ledger
		m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				if m.Payload.Offset == 3 {
					<-release
				}
				ledger.add("m", m.Payload)
				return nil
			})
		}, opts, arroyo.DrainTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		taken := rival.Assigned()[0]
		if n := m.Status().Abandoned; n < 1 || n > 14 {
			t.Errorf("%d records were abandoned, want those that are stuck and what was submitted with them", n)
		}
		rival.Leave()
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		s := m.Status().Partitions[taken]
		if s.Epoch.Number != taken || s.State != arroyo.PartitionWaiting {
			t.Errorf("partition %d is %q, want %d to be waiting", s.Epoch.Number, s.State, taken)
		}
		if diff := cmp.Diff(map[int32]int64{0: 3, 1: 3}, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed (-want +got):\n%s", diff)
		}
		close(release)
		broker.WaitCommitted(group, topic, 20)
		m.shutDown(t)
		ledger.expectAll(t, broker, 4) // what was submitted and abandoned
		expectCommitted(t, broker)
	})
}

// A partition whose old lane never ends stops the run with an error that names
// the step.
func TestRegainedPartitionWhoseOldLaneIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		var ledger ledger
		processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker), func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return stuck(&ledger, "7", release), nil
		}, quiet, arroyo.DrainTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(t.Context()) }()
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		rival := broker.Join(group, topic)
		rival.Take(1)
		broker.WaitStable(group, 2)
		rival.Leave()
		err = <-ended
		var stuck *arroyo.StuckError
		if !errors.As(err, &stuck) || stuck.Step != "insert" || stuck.Partition != (arroyo.Partition{Topic: topic, Number: 1}) {
			t.Errorf("Run: %v; want a StuckError of step insert and partition 1", err)
		}
		if n := broker.Members(group); n != 0 {
			t.Errorf("the group has %d members after Run", n)
		}
		close(release)
	})
}

// The function that makes a pipeline fails, panics, returns nothing, or takes a
// minute: the error names the partition, and the others do not wait.
func TestPipelineFunction(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		f    func() (arroyo.Strategy[*kgo.Record], error)
		want func(error) bool
	}{
		{"fails", func() (arroyo.Strategy[*kgo.Record], error) { return nil, broken },
			func(err error) bool { return errors.Is(err, broken) }},
		{"panics", func() (arroyo.Strategy[*kgo.Record], error) { panic("boom") },
			func(err error) bool {
				var p *arroyo.PanicError
				return errors.As(err, &p) && p.Value == "boom" && strings.Contains(string(p.Stack), "TestPipelineFunction")
			}},
		{"nothing", func() (arroyo.Strategy[*kgo.Record], error) { return nil, nil },
			func(err error) bool { return strings.Contains(err.Error(), "no pipeline") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 3))
				produce(broker, 30)
				var ledger ledger
				processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, opts...), func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
					if e.Number == 1 {
						time.Sleep(5 * time.Second)
						return tt.f()
					}
					return ledger.by("m"), nil
				}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				err = processor.Run(t.Context())
				var step *arroyo.StepError
				if !errors.As(err, &step) || step.Epoch.Partition != (arroyo.Partition{Topic: topic, Number: 1}) || !tt.want(err) {
					t.Errorf("Run: %v; want it to name partition 1", err)
				}
				if diff := cmp.Diff(map[int32]int64{0: 10, 1: 0, 2: 10}, broker.Committed(group, topic)); diff != "" {
					t.Errorf("committed (-want +got):\n%s", diff)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members after Run", n)
				}
			})
		})
	}
	t.Run("takes a minute", func(t *testing.T) {
		underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
			broker := memkafka.New(t, memkafka.Topic(topic, 3))
			produce(broker, 30)
			var ledger ledger
			m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
				if e.Number == 1 {
					time.Sleep(time.Minute)
				}
				return ledger.by("m")
			}, opts)
			time.Sleep(10 * time.Second)
			if n := len(ledger.all()); n != 20 {
				t.Errorf("%d records of the others are done, want 20", n)
			}
			broker.WaitCommitted(group, topic, 30)
			m.shutDown(t)
			ledger.expectAll(t, broker, 0)
		})
	})
}

// The pipeline of a partition is closed, once, before its next owner begins,
// and each assignment has a new one.
func TestPipelineIsClosedBeforeTheNextOwnerBegins(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var (
			ledger ledger
			mu     sync.Mutex
			open   = make(map[int32]int)
			made   int
		)
		pipeline := func(by string) func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			return func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
				mu.Lock()
				defer mu.Unlock()
				made++
				if open[e.Number]++; open[e.Number] > 1 {
					t.Errorf("partition %d has %d pipelines", e.Number, open[e.Number])
				}
				return hook{Forward: arroyo.ForwardTo(ledger.by(by)), close: func(context.Context) error {
					time.Sleep(2 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					open[e.Number]--
					return nil
				}}
			}
		}
		first := startPartitioned(t, broker, pipeline("first"), opts)
		produce(broker, 100)
		broker.WaitCommitted(group, topic, 100)
		second := startPartitioned(t, broker, pipeline("second"), opts)
		broker.WaitStable(group, 2)
		produce(broker, 100)
		broker.WaitCommitted(group, topic, 200)
		second.shutDown(t)
		broker.WaitStable(group, 1)
		produce(broker, 100)
		broker.WaitCommitted(group, topic, 300)
		first.shutDown(t)
		ledger.expectAll(t, broker, 0)
		for p, n := range open {
			if n != 0 {
				t.Errorf("%d pipelines of partition %d were not closed", n, p)
			}
		}
		if made < 8 {
			t.Errorf("%d pipelines were made, want one for each of at least 8 assignments", made)
		}
	})
}

// Whatever fails in one partition's pipeline ends the run once, with the first
// cause; what is settled in all of them is committed, each pipeline is closed
// once, and the group is left.
func TestFailureInOnePartition(t *testing.T) {
	broken := errors.New("broken")
	panicked := func(err error) bool {
		var p *arroyo.PanicError
		return errors.As(err, &p) && p.Value == "boom" && len(p.Stack) > 0
	}
	failed := func(err error) bool { return errors.Is(err, broken) }
	type submit = func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error
	ackThen := func(then func(ctx context.Context) error) submit {
		return func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			arroyo.AckAll(msgs)
			return then(ctx)
		}
	}
	for _, tt := range []struct {
		name   string
		submit submit
		close  func(context.Context) error
		want   func(error) bool
	}{
		{"a task", func(context.Context, []arroyo.Message[*kgo.Record]) error { return broken }, nil, failed},
		{"a panic in a task", func(context.Context, []arroyo.Message[*kgo.Record]) error { panic("boom") }, nil, panicked},
		{"a panic in a timer", ackThen(func(ctx context.Context) error {
			arroyo.LaneOf(ctx).After(time.Second, func(context.Context) error { panic("boom") })
			return nil
		}), nil, panicked},
		{"a panic in a worker", ackThen(func(ctx context.Context) error {
			arroyo.LaneOf(ctx).Go(func(context.Context) error { panic("boom") })
			return nil
		}), nil, panicked},
		{"an error of what was posted", ackThen(func(ctx context.Context) error {
			arroyo.LaneOf(ctx).Post(func(context.Context) error { return broken })
			return nil
		}), nil, failed},
		{"an error of Close", nil, func(context.Context) error { return broken }, failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 3))
				produce(broker, 30)
				var (
					ledger ledger
					mu     sync.Mutex
					closed = make(map[int32]int)
				)
				processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, opts...), func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
					h := hook{Forward: arroyo.ForwardTo(ledger.by("m")), close: func(ctx context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						closed[e.Number]++
						if tt.close != nil && e.Number == 1 {
							return tt.close(ctx)
						}
						return nil
					}}
					if e.Number == 1 && tt.submit != nil {
						h.submit = func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
							time.Sleep(5 * time.Second) // the others are done by then
							return tt.submit(ctx, msgs)
						}
					}
					return h, nil
				}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err = processor.Run(ctx)
				var step *arroyo.StepError
				if !tt.want(err) || !errors.As(err, &step) || step.Epoch.Number != 1 {
					t.Errorf("Run: %v; want it to name partition 1", err)
				}
				if diff := cmp.Diff(map[int32]int{0: 1, 1: 1, 2: 1}, closed); diff != "" {
					t.Errorf("closed (-want +got):\n%s", diff)
				}
				committed := broker.Committed(group, topic)
				if committed[0] != 10 || committed[2] != 10 {
					t.Errorf("committed %v, want all of partitions 0 and 2", committed)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members after Run", n)
				}
			})
		})
	}
}

// I12: a partition that is paused by the user and because its queue is full
// flows only when both have ended; and not only because it was given up and
// came back.
func TestI12PausedByTheUserAndFull(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var ledger ledger
		release := make(chan struct{})
		consumer := newConsumer(t, broker, append(opts, kgo.FetchMaxPartitionBytes(1000))...)
		processor, err := arroyo.NewPartitionedProcessor(consumer, func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				if m.Payload.Offset == 100 {
					select {
					case <-release:
					case <-arroyo.Draining(ctx):
					}
				}
				ledger.add("m", m.Payload)
				return nil
			}), nil
		}, quiet, arroyo.MaxPartitionInFlight(100))
		if err != nil {
			t.Fatal(err)
		}
		stop := memkafka.Start(t, processor.Run)
		broker.WaitStable(group, 1)
		trickle(broker, 1200)
		time.Sleep(10 * time.Second)
		both := []arroyo.Partition{{Topic: topic, Number: 0}, {Topic: topic, Number: 1}}
		state := func(want ...arroyo.PartitionState) {
			t.Helper()
			var got []arroyo.PartitionState
			for _, p := range processor.Status().Partitions {
				got = append(got, p.State)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		}
		state(arroyo.PartitionFull, arroyo.PartitionFull)
		if err := consumer.Pause(both...); err != nil {
			t.Fatal(err)
		}
		close(release)
		time.Sleep(10 * time.Second)
		state(arroyo.PartitionPaused, arroyo.PartitionPaused)
		done := len(ledger.all())
		if done < 200 || done > 1000 {
			t.Errorf("%d records are done while both partitions are paused, want what was in flight", done)
		}
		if err := consumer.Resume(both[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		state(arroyo.PartitionFlows, arroyo.PartitionPaused)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		rival.Leave()
		rival = broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		rival.Leave()
		broker.WaitStable(group, 1)
		time.Sleep(10 * time.Second)
		for _, p := range processor.Status().Partitions {
			if p.Epoch.N > 2 && p.State != arroyo.PartitionFlows {
				t.Errorf("%s came back and is %q", p.Epoch, p.State)
			}
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A run may end while a partition waits for user code of its last assignment,
// in any way.
func TestEndWhileAPartitionWaits(t *testing.T) {
	for name, end := range map[string]func(p *arroyo.Processor, c *arroyo.Consumer, cancel func()){
		"in order":    func(_ *arroyo.Processor, _ *arroyo.Consumer, cancel func()) { cancel() },
		"abandoned":   func(p *arroyo.Processor, _ *arroyo.Consumer, _ func()) { p.Abandon() },
		"by its user": func(_ *arroyo.Processor, c *arroyo.Consumer, _ func()) { c.Drain(time.Second) },
		"all at once": func(p *arroyo.Processor, c *arroyo.Consumer, cancel func()) {
			cancel()
			c.Drain(time.Second)
			p.Abandon()
		},
		"by its close": func(_ *arroyo.Processor, c *arroyo.Consumer, _ func()) { _ = c.Close() },
		"unanswered":   func(p *arroyo.Processor, _ *arroyo.Consumer, _ func()) { p.Abandon() },
	} {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				release := make(chan struct{})
				var ledger ledger
				consumer := newConsumer(t, broker, opts...)
				processor, err := arroyo.NewPartitionedProcessor(consumer, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
					return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
						if m.Payload.Offset == 3 {
							<-release
						}
						ledger.add("m", m.Payload)
						return nil
					}), nil
				}, quiet, arroyo.DrainTimeout(10*time.Second), arroyo.CommitInterval(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- processor.Run(ctx) }()
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				rival := broker.Join(group, topic, opts...)
				broker.WaitStable(group, 2)
				rival.Leave()
				for waits := false; !waits; time.Sleep(50 * time.Millisecond) {
					for _, p := range processor.Status().Partitions {
						waits = waits || p.State == arroyo.PartitionWaiting
					}
				}
				if name == "unanswered" {
					broker.Swallow(kmsg.OffsetCommit)
				}
				began := time.Now()
				end(processor, consumer, cancel)
				if err := <-ended; err == nil {
					t.Error("Run returned nil although user code has not returned")
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("Run returned after %v", took)
				}
				cancel()
				close(release)
			})
		})
	}
}
