package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

type hook struct {
	arroyo.Forward[*kgo.Record]
	submit func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error
	flush  func(ctx context.Context) error
	close  func(ctx context.Context) error
}

func (h hook) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	if h.submit != nil {
		return h.submit(ctx, msgs)
	}
	return h.Forward.Submit(ctx, msgs)
}
func (h hook) Flush(ctx context.Context) error {
	if h.flush != nil {
		return h.flush(ctx)
	}
	return h.Forward.Flush(ctx)
}
func (h hook) Close(ctx context.Context) error {
	if h.close != nil {
		return h.close(ctx)
	}
	return h.Forward.Close(ctx)
}

func noop() arroyo.Forward[*kgo.Record] { return arroyo.ForwardTo(strategies.Noop[*kgo.Record]()) }

// A Close that does not return is named in Run's error.
func TestI11CloseThatBlocksIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		m := startMember(t, broker, hook{Forward: noop(), close: func(ctx context.Context) error { <-release; return nil }}, nil, arroyo.DrainTimeout(10*time.Second))
		broker.WaitCommitted(group, topic, 20)
		err := m.stop()
		if err == nil {
			t.Error("Run returned nil while Close has not returned")
		}
		close(release)
	})
}

// So is a goroutine of a step's own.
func TestI11HelperThatBlocksIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		started := false
		m := startMember(t, broker, hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			if !started {
				started = true
				arroyo.LaneOf(ctx).Go(func(context.Context) error { <-release; return nil })
			}
			arroyo.AckAll(msgs)
			return nil
		}}, nil, arroyo.DrainTimeout(10*time.Second))
		broker.WaitCommitted(group, topic, 20)
		err := m.stop()
		if err == nil {
			t.Error("Run returned nil while a helper has not returned")
		}
		close(release)
	})
}

// A batch that its timer handed out and that does not return is named.
func TestI11TimerThatBlocksIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		m := startMember(t, broker, strategies.ForEachBatch(1000, time.Second, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
			<-release
			return nil
		}, strategies.Name("insert")), nil, arroyo.DrainTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(3 * time.Second)
		err := m.stop()
		var left *arroyo.AbandonedError
		if !errors.As(err, &left) || left.Step != "insert" {
			t.Errorf("Run: %v; want the step named", err)
		}
		close(release)
	})
}

// When a helper fails, the Submit that waits for it is told.
func TestFailureEndsSubmitsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		broken := errors.New("broken")
		ch := make(chan []arroyo.Message[*kgo.Record])
		started := false
		processor, err := arroyo.NewProcessor(newConsumer(t, broker), hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			if !started {
				started = true
				arroyo.LaneOf(ctx).Go(func(context.Context) error { time.Sleep(time.Second); return broken })
			}
			select {
			case ch <- msgs:
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		}}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err = processor.Run(t.Context())
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("Run took %v", took)
		}
		if errors.Is(err, arroyo.ErrAbandoned) {
			t.Error("abandoned")
		}
	})
}

// What a call returns because its context ended is not the failure of the run.
func TestAbandonedCallIsNoFailure(t *testing.T) {
	for _, kind := range []string{"batch", "each"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				var pipe arroyo.Strategy[*kgo.Record]
				if kind == "batch" {
					pipe = strategies.ForEachBatch(5, time.Second, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
						<-ctx.Done()
						return ctx.Err()
					})
				} else {
					pipe = strategies.ForEach(func(ctx context.Context, rows arroyo.Message[*kgo.Record]) error {
						<-ctx.Done()
						return ctx.Err()
					})
				}
				m := startMember(t, broker, pipe, nil, arroyo.DrainTimeout(10*time.Second))
				broker.WaitStable(group, 1)
				time.Sleep(3 * time.Second)
				err := m.stop()
				var step *arroyo.StepError
				if errors.As(err, &step) {
					t.Error("a context error of an abandoned call is reported as the failure")
				}
			})
		})
	}
}

// A drain without any time ends all the same.
func TestDrainWithoutTime(t *testing.T) {
	for i := range 200 {
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic(topic, 2))
			c := newConsumer(t, broker)
			defer c.Close()
			expect[*arroyo.Assigned](t, c)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			c.Poll(ctx)
			cancel()
			c.Drain(0)
			for {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				ev, err := c.Poll(ctx)
				cancel()
				if err != nil {
					t.Fatalf("%d: Poll: %v", i, err)
				}
				if _, ok := ev.(*arroyo.Closed); ok {
					break
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// The user may drain the consumer that Run uses: Run ends clean.
func TestUserDrainsTheConsumerOfARun(t *testing.T) {
	for i := range 20 {
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic(topic, 2))
			produce(broker, 200)
			c := newConsumer(t, broker)
			p, _ := arroyo.NewProcessor(c, strategies.ForEachBatch(1000, time.Hour, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
				time.Sleep(100 * time.Millisecond)
				return nil
			}), quiet)
			res := make(chan error, 1)
			go func() { res <- p.Run(t.Context()) }()
			time.Sleep(2 * time.Second)
			c.Drain(5 * time.Second)
			err := <-res
			if i == 0 {
			}
			if err != nil {
				t.Errorf("Run: %v", err)
			}
			time.Sleep(time.Minute)
			expectCommitted(t, broker)
		})
	}
}

// The same for what a timer called.
func TestAbandonedTimerIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		m := startMember(t, broker, strategies.ForEachBatch(1000, time.Second, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
			<-ctx.Done()
			return ctx.Err()
		}, strategies.Name("insert")), nil, arroyo.DrainTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(3 * time.Second)
		err := m.stop()
		var step *arroyo.StepError
		if errors.As(err, &step) {
			t.Error("what a call returned because it was told to stop is reported as a failure")
		}
	})
}

// A t.Fatal in a user function ends the run with an error.
func TestGoexitEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		p, _ := arroyo.NewProcessor(newConsumer(t, broker), strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
			if m.Payload.Offset == 5 {
				runtime.Goexit()
			}
			return nil
		}), quiet)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := p.Run(ctx)
		if err == nil {
			t.Error("Run returned nil")
		}
	})
}

// An error of Flush in a revoke's drain ends the run, and the group goes on.
func TestFlushErrorAtARevoke(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		produce(broker, 40)
		broken := errors.New("broken")
		c := newConsumer(t, broker, opts...)
		p, _ := arroyo.NewProcessor(c, hook{Forward: noop(), flush: func(context.Context) error { return broken }}, quiet)
		res := make(chan error, 1)
		go func() { res <- p.Run(t.Context()) }()
		broker.WaitCommitted(group, topic, 40)
		r := broker.Join(group, topic, opts...)
		began := time.Now()
		err := <-res
		if !errors.Is(err, broken) || time.Since(began) > 10*time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(began))
		}
		broker.WaitStable(group, 1)
		_ = r
	})
}

// Partitions that are lost during the last drain, with work that was not committed, are told of.
func TestLostDuringTheLastDrain(t *testing.T) {
	for _, p := range protocols {
		for ms := 0; ms <= 4000; ms += 500 {
			t.Run(fmt.Sprint(p.name, ms), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 20)
					m := startMember(t, broker, strategies.ForEachBatch(1000, time.Hour, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
						time.Sleep(5 * time.Second)
						return nil
					}), p.opts, arroyo.DrainTimeout(20*time.Second))
					broker.WaitStable(group, 1)
					time.Sleep(3*time.Second + time.Duration(ms)*time.Millisecond)
					key := kmsg.Heartbeat
					if p.name == "kip848" {
						key = kmsg.ConsumerGroupHeartbeat
					}
					broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, TopLevel: true, Err: kerr.UnknownMemberID, Count: -1})
					err := m.stop()
					sum := int64(0)
					for _, o := range broker.Committed(group, topic) {
						sum += o
					}
					if err == nil && sum < 20 {
						t.Error("Run returned nil although nothing was committed")
					}
				})
			})
		}
	}
}

// S14: a panic in a timer, a helper, Flush or Close ends the run with its stack.
func TestS14PanicsEverywhere(t *testing.T) {
	for _, where := range []string{"timer", "go", "flush", "close"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 10)
				once := false
				h := hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
					if !once {
						once = true
						switch where {
						case "timer":
							arroyo.LaneOf(ctx).After(time.Second, func(context.Context) error { panic("boom") })
						case "go":
							arroyo.LaneOf(ctx).Go(func(context.Context) error { panic("boom") })
						}
					}
					arroyo.AckAll(msgs)
					return nil
				}}
				if where == "flush" {
					h.flush = func(context.Context) error { panic("boom") }
				}
				if where == "close" {
					h.close = func(context.Context) error { panic("boom") }
				}
				p, _ := arroyo.NewProcessor(newConsumer(t, broker), h, quiet)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := p.Run(ctx)
				var pe *arroyo.PanicError
				if !errors.As(err, &pe) {
					t.Errorf("Run: %v", err)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("%d members", n)
				}
			})
		})
	}
}

// The user may close the consumer that Run uses: Run ends at once.
func TestUserClosesTheConsumerOfARun(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 100)
		c := newConsumer(t, broker, opts...)
		closed := 0
		p, _ := arroyo.NewProcessor(c, hook{Forward: arroyo.ForwardTo(strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return ctx.Err()
		})), close: func(context.Context) error { closed++; return nil }}, quiet)
		res := make(chan error, 1)
		go func() { res <- p.Run(t.Context()) }()
		time.Sleep(5 * time.Second)
		began := time.Now()
		c.Close()
		err := <-res
		if !errors.Is(err, arroyo.ErrClosed) || closed != 1 || time.Since(began) > 2*time.Second {
			t.Errorf("Run: %v, closed %d", err, closed)
		}
	})
}

// A Close that gives up because its time is over has not failed: the run was
// abandoned, and says that.
func TestAbandonedCloseIsNoFailure(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return hook{Forward: noop(), close: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}}
		}, opts, arroyo.DrainTimeout(10*time.Second))
		broker.WaitCommitted(group, topic, 20)
		err := m.stop()
		var step *arroyo.StepError
		if errors.As(err, &step) {
			t.Errorf("Run: %v", err)
		}
	})
}

// A last commit that waits behind one that is not answered finds its partitions
// lost: Run's error is that of partitions that were lost, as it is without such
// a wait, and no hook is told that they were given up in order.
func TestLostWhileTheLastCommitWaits(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				host := broker.Host()
				var seen revocations
				m := startMember(t, broker, strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error { return nil }),
					slices.Concat(p.opts, host.ClientOptions()),
					arroyo.DrainTimeout(50*time.Second), arroyo.CommitInterval(500*time.Millisecond), arroyo.Hooks(&seen))
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				produce(broker, 10)
				time.Sleep(400 * time.Millisecond) // processed, and not yet committed
				host.BlackHole()
				time.Sleep(500 * time.Millisecond) // a commit is under way
				err := m.stop()
				host.Heal()
				var left *arroyo.AbandonedError
				if !errors.As(err, &left) || len(left.Lost) != 2 {
					t.Errorf("Run: %v, want the error of 2 partitions that were lost", err)
				}
				var refused *arroyo.NotHeldError
				if errors.As(err, &refused) {
					t.Errorf("Run: %v, which is for those who commit themselves", err)
				}
				if seen.revoked.Load() != 0 || seen.lost.Load() != 2 {
					t.Errorf("hooks were told of %d partitions that were given up in order and of %d that were lost, want 0 and 2", seen.revoked.Load(), seen.lost.Load())
				}
			})
		})
	}
}

// revocations counts what hooks are told of.
type revocations struct{ revoked, lost atomic.Int64 }

func (r *revocations) OnRevoked(epochs []arroyo.Epoch, _ time.Duration) {
	r.revoked.Add(int64(len(epochs)))
}
func (r *revocations) OnLost(epochs []arroyo.Epoch, _ error) { r.lost.Add(int64(len(epochs))) }
