package arroyo_test

import (
	"context"
	"errors"
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

// I1: nothing is lost. Whatever a member was doing when it vanished, below a
// committed offset every record had been processed.
func TestI1NothingIsLostWhenAMemberCrashes(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		for crash := range 10 {
			c := newConsumer(t, broker, opts...)
			processor, err := arroyo.NewProcessor(c, batching(&ledger, "crashes", 7, 30*time.Millisecond), quiet)
			if err != nil {
				t.Fatal(err)
			}
			stop := memkafka.Start(t, processor.Run)
			produce(broker, 100)
			time.Sleep(time.Duration(crash) * 370 * time.Millisecond)
			synctest.Wait() // it runs
			c.Close()       // no drain, no commit
			if err := stop(); !errors.Is(err, arroyo.ErrClosed) {
				t.Fatalf("Run of a closed consumer: %v, want ErrClosed", err)
			}
			done := ledger.counts()
			for p, committed := range broker.Committed(group, topic) {
				for offset := range committed {
					if done[[2]int64{int64(p), offset}] == 0 {
						t.Errorf("offset %d of partition %d is committed and was never processed", offset, p)
					}
				}
			}
		}
		last := startMember(t, broker, batching(&ledger, "last", 7, 0), opts)
		broker.WaitCommitted(group, topic, 1000)
		last.shutDown(t)
		ledger.expectAll(t, broker, 10*1000)
	})
}

// batching is a pipeline of several steps that ends in batches.
func batching(l *ledger, by string, size int, pause time.Duration) arroyo.Strategy[*kgo.Record] {
	return strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (int64, error) {
		return m.Payload.Offset, nil
	},
		strategies.ForEachBatch(size, 200*time.Millisecond, func(_ context.Context, rows []arroyo.Message[int64]) error {
			time.Sleep(pause)
			for _, row := range rows {
				l.add(by, row.Record())
			}
			return nil
		}))
}

// I2: commits are at most the watermark, rise within an epoch, and are never
// for an epoch that is not held.
func TestI2CommitsAreOfWhatIsSettledAndHeld(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 6))
		var ledger ledger
		var commits atomic.Int64
		highest := make(map[int32]int64)
		// The control sees every commit before the broker does.
		broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			broker.Cluster().KeepControl()
			commits.Add(1)
			seen := ledger.counts()
			for _, rt := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, rp := range rt.Partitions {
					for offset := range rp.Offset {
						if seen[[2]int64{int64(rp.Partition), offset}] == 0 {
							t.Errorf("commit of %d for partition %d, but %d is not done", rp.Offset, rp.Partition, offset)
						}
					}
					// Every member goes on where the last
					// commit was, so nobody may go below it.
					if rp.Offset < highest[rp.Partition] {
						t.Errorf("commit of %d for partition %d after %d", rp.Offset, rp.Partition, highest[rp.Partition])
					}
					highest[rp.Partition] = rp.Offset
				}
			}
			return nil, nil, false
		})

		stay := start(t, broker, ledger.slowPipeline("stay", 3*time.Millisecond), opts, arroyo.CommitInterval(50*time.Millisecond))
		for range 5 {
			produce(broker, 300)
			come := start(t, broker, ledger.slowPipeline("come", 5*time.Millisecond), opts, arroyo.CommitInterval(70*time.Millisecond))
			time.Sleep(7 * time.Second)
			come.shutDown(t)
			time.Sleep(2 * time.Second)
		}
		broker.WaitCommitted(group, topic, 1500)
		stay.shutDown(t)
		if commits.Load() < 10 {
			t.Errorf("only %d commits were seen", commits.Load())
		}
		ledger.expectAll(t, broker, 0)
	})
}

// I3: after a revocation was released no record of the partition is handed to
// user code.
func TestI3NothingIsHandedOutAfterTheRelease(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		produce(broker, 8000) // more than it gets done before the rival comes
		var ledger ledger
		m := start(t, broker, ledger.slowPipeline("member", 20*time.Millisecond), opts)
		broker.WaitStable(group, 1)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		taken := rival.Assigned()
		if len(taken) != 2 {
			t.Fatalf("the rival has %v, want two partitions", taken)
		}
		released := time.Now()
		time.Sleep(5 * time.Second)
		others := 0
		for _, s := range ledger.all() {
			if !s.at.After(released) {
				continue
			}
			if s.partition == taken[0] || s.partition == taken[1] {
				t.Errorf("offset %d of partition %d was handed out %v after its release", s.offset, s.partition, s.at.Sub(released))
			} else {
				others++
			}
		}
		if others == 0 {
			t.Error("the partitions that stayed made no progress")
		}
		m.shutDown(t)
	})
}

// I3, with members of a batch that were collected before their partition was
// lost: they are taken out before user code sees the batch.
func TestI3BatchWithoutFencedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var ledger ledger
		var mu sync.Mutex
		var batches [][]int32
		pipeline := strategies.ForEachBatch(1000, 10*time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			mu.Lock()
			defer mu.Unlock()
			var ps []int32
			for _, row := range rows {
				ps = append(ps, row.Payload.Partition)
				ledger.add("member", row.Payload)
			}
			batches = append(batches, ps)
			return nil
		})
		// The drain is never the reason for this flush: the member is
		// kicked out, so that all of its epochs end at once.
		m := startMember(t, broker, pipeline, nil)
		broker.WaitStable(group, 1)
		produce(broker, 10)
		time.Sleep(time.Second)
		kick(t, broker)
		broker.WaitCommitted(group, topic, 10)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0) // collected twice, handed out once
	})
}

// kick removes the only member of the group, as an administrator does.
func kick(t *testing.T, broker *memkafka.Broker) {
	t.Helper()
	admin, err := kgo.NewClient(broker.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = broker.Cluster().GroupInfo(group).Members[0].MemberID
	req.MemberID = member.MemberID
	req.Members = append(req.Members, member)
	if _, err := req.RequestWith(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
}

// I4: each partition's records are submitted and handed on in order.
func TestI4OrderPerPartition(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 5))
		var ledger ledger
		var all []*member
		for _, by := range []string{"a", "b", "c"} {
			pipeline := func() arroyo.Strategy[*kgo.Record] {
				return strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool { return true },
					batching(&ledger, by, 10, time.Millisecond))
			}
			all = append(all, start(t, broker, pipeline, opts))
			broker.WaitStable(group, len(all))
			produce(broker, 500)
		}
		broker.WaitCommitted(group, topic, 1500)
		for _, m := range all {
			m.shutDown(t)
		}
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// I5: after a crash at most what was done since the last commit is done
// again; after a clean drain nothing is (the takeover tests show that).
func TestI5DuplicatesAreBounded(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 1000)
		var ledger ledger
		c := newConsumer(t, broker, opts...)
		processor, err := arroyo.NewProcessor(c, ledger.slow("crashes", 10*time.Millisecond), quiet, arroyo.CommitInterval(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		stop := memkafka.Start(t, processor.Run)
		time.Sleep(3500 * time.Millisecond) // half a second after the last commit
		c.Close()
		_ = stop()
		committed := 0
		for _, offset := range broker.Committed(group, topic) {
			committed += int(offset)
		}
		since := len(ledger.all()) - committed
		if committed == 0 || since <= 0 || since > 110 {
			t.Fatalf("%d records committed and %d done since; want some, and at most those of a commit interval", committed, since)
		}
		next := startMember(t, broker, ledger.by("next"), opts)
		broker.WaitCommitted(group, topic, 1000)
		next.shutDown(t)
		ledger.expectAll(t, broker, since)
	})
}

// I8: a drain with nothing to do ends at once.
func TestI8IdleDrainsEndAtOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		m := start(t, broker, ledger.pipeline("member"), opts)
		produce(broker, 10)
		broker.WaitCommitted(group, topic, 10)
		began := time.Now()
		m.shutDown(t)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("shutting an idle member down took %v", took)
		}
	})
}

// I8: a half-full batch is flushed, committed and released at once, at a
// revoke and at the end.
func TestI8HalfFullBatchIsFlushed(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		pipeline := func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(1_000_000, 24*time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				for _, row := range rows {
					ledger.add("member", row.Payload)
				}
				return nil
			})
		}
		m := start(t, broker, pipeline, opts)
		broker.WaitStable(group, 1)
		produce(broker, 40)
		time.Sleep(time.Minute)
		if n := len(ledger.all()); n != 0 {
			t.Fatalf("%d records were handed out before the batch was full", n)
		}
		rival := broker.Join(group, topic, opts...)
		joined := time.Now()
		broker.WaitStable(group, 2)
		if took := time.Since(joined); took > 12*time.Second {
			t.Errorf("the rival waited %v for its partitions", took)
		}
		committed := broker.Committed(group, topic)
		for _, p := range rival.Assigned() {
			if committed[p] != 10 {
				t.Errorf("partition %d was given up at %d, want 10", p, committed[p])
			}
		}
		began := time.Now()
		m.shutDown(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the last drain took %v", took)
		}
		ledger.expectAll(t, broker, 0)
		expectCommitted(t, broker)
	})
}

// stuck is a pipeline whose function does not return once it met a record,
// until release is closed, whatever its context says.
func stuck(l *ledger, at string, release chan struct{}) arroyo.Strategy[*kgo.Record] {
	return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		if string(m.Payload.Value) == at {
			<-release
		}
		l.add("stuck", m.Payload)
		return nil
	}, strategies.Name("insert"))
}

func stuckPipeline(l *ledger, at string, release chan struct{}) pipelineFunc {
	return func() arroyo.Strategy[*kgo.Record] { return stuck(l, at, release) }
}

// I8: the group moves on when a function does not return; the settled prefix
// is committed, and the next owner processes the rest.
func TestI8StuckAtARevoke(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		var ledger ledger
		m := start(t, broker, stuckPipeline(&ledger, "7", release), opts, arroyo.DrainTimeout(20*time.Second)) // offset 3 of partition 1
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)

		next := start(t, broker, ledger.pipeline("next"), opts)
		began := time.Now()
		broker.WaitStable(group, 2)
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("the group moved on after %v", took)
		}
		close(release)
		broker.WaitCommitted(group, topic, 20)
		next.shutDown(t)
		m.shutDown(t)
		ledger.expectAll(t, broker, 20)
		expectCommitted(t, broker)
	})
}

// I8: Run returns at most DrainTimeout and a second after its context ended,
// whatever user code and the broker do, and says what was left.
func TestI8RunReturnsInTime(t *testing.T) {
	for _, tt := range []struct {
		name        string
		stuck, down bool
	}{
		{"the function ignores its context", true, false},
		{"the broker is gone", false, true},
		{"both", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produceTo(broker, 0, 10)
				release := make(chan struct{})
				at := "none"
				if tt.stuck {
					at = "7"
				}
				var ledger ledger
				m := start(t, broker, stuckPipeline(&ledger, at, release), opts, arroyo.DrainTimeout(10*time.Second))
				broker.WaitStable(group, 1)
				for len(ledger.all()) < 10 { // which of two is fetched first is open
					time.Sleep(10 * time.Millisecond)
				}
				produceTo(broker, 1, 10)
				time.Sleep(100 * time.Millisecond) // not yet a commit interval
				if tt.down {
					broker.Down()
				}
				began := time.Now()
				err := m.stop()
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("Run returned after %v, want at most 11 s", took)
				}
				if err == nil {
					t.Error("Run returned nil although not everything was done and committed")
				}
				if tt.stuck {
					var left *arroyo.AbandonedError
					if !errors.As(err, &left) || !errors.Is(err, arroyo.ErrAbandoned) {
						t.Fatalf("Run: %v, want an AbandonedError", err)
					}
					if left.Step != "insert" || left.Records == 0 && len(left.Lost) == 0 || !strings.Contains(err.Error(), "insert") {
						t.Errorf("Run: %v; want the step that is stuck and what was left", err)
					}
					if !tt.down {
						if diff := cmp.Diff(map[int32]int64{0: 10, 1: 3}, broker.Committed(group, topic)); diff != "" {
							t.Errorf("committed (-want +got):\n%s", diff)
						}
					}
				}
				close(release)
			})
		})
	}
}

// closeCounter counts the calls of Close.
type closeCounter struct {
	arroyo.Forward[*kgo.Record]
	closed *atomic.Int32
}

func (s closeCounter) Close(ctx context.Context) error {
	s.closed.Add(1)
	return s.Forward.Close(ctx)
}

// I11: no goroutine outlives Run, however it ends, and the pipeline is closed
// once. The bubble fails if one is left.
func TestI11NoGoroutineOutlivesRun(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		f    func(arroyo.Message[*kgo.Record]) error
		want func(error) bool
	}{
		{"clean", func(arroyo.Message[*kgo.Record]) error { return nil }, func(err error) bool { return err == nil }},
		{"error", func(arroyo.Message[*kgo.Record]) error { return broken }, func(err error) bool { return errors.Is(err, broken) }},
		{"panic", func(arroyo.Message[*kgo.Record]) error { panic("boom") }, func(err error) bool {
			var p *arroyo.PanicError
			return errors.As(err, &p) && p.Value == "boom"
		}},
		{"invalid", func(arroyo.Message[*kgo.Record]) error { return arroyo.Invalid(broken) }, func(err error) bool { return errors.Is(err, arroyo.ErrNoDeadLetter) && errors.Is(err, broken) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 100)
				var closed atomic.Int32
				pipeline := closeCounter{arroyo.ForwardTo(strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
					return tt.f(m)
				})), &closed}
				processor, err := arroyo.NewProcessor(newConsumer(t, broker), pipeline, quiet)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := processor.Run(ctx); !tt.want(err) {
					t.Errorf("Run: %v", err)
				}
				if n := closed.Load(); n != 1 {
					t.Errorf("the pipeline was closed %d times, want once", n)
				}
				if err := processor.Run(t.Context()); !errors.Is(err, arroyo.ErrAlreadyRun) {
					t.Errorf("second Run: %v, want ErrAlreadyRun", err)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members after Run, want 0", n)
				}
			})
		})
	}
}
