package arroyo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// forked is a step that calls the next one on a goroutine of its own.
type forked struct {
	arroyo.Forward[*kgo.Record]
	fork *arroyo.Lane
	jobs chan func() error
	over chan struct{}
}

func newForked(next arroyo.Strategy[*kgo.Record]) *forked {
	return &forked{Forward: arroyo.ForwardTo(next), jobs: make(chan func() error, 100), over: make(chan struct{})}
}

func (s *forked) do(ctx context.Context, f func(context.Context) error) {
	if s.fork == nil {
		s.fork = arroyo.LaneOf(ctx).Fork()
		arroyo.LaneOf(ctx).Go(func(context.Context) error {
			defer close(s.over)
			return s.fork.Serve(s.jobs)
		})
	}
	ctx = s.fork.In(ctx)
	s.jobs <- func() error { return f(ctx) }
}

func (s *forked) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	msgs = slices.Clone(msgs)
	s.do(ctx, func(ctx context.Context) error { return s.Next.Submit(ctx, msgs) })
	return nil
}

func (s *forked) Flush(ctx context.Context) error {
	s.do(ctx, s.Next.Flush)
	return nil
}

func (s *forked) Close(ctx context.Context) error {
	close(s.jobs)
	select {
	case <-s.over:
		return s.Next.Close(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// step is a strategy made of functions.
type step struct {
	submit func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error
	flush  func(context.Context) error
	close  func(context.Context) error
}

func (s step) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	if s.submit == nil {
		arroyo.AckAll(msgs)
		return nil
	}
	return s.submit(ctx, msgs)
}

func (s step) Flush(ctx context.Context) error {
	if s.flush == nil {
		return nil
	}
	return s.flush(ctx)
}

func (s step) Close(ctx context.Context) error {
	if s.close == nil {
		return nil
	}
	return s.close(ctx)
}

// recordsFrom makes records whose offsets rise from first on, with these values.
func recordsFrom(first int64, values ...string) []*kgo.Record {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Offset: first + int64(i), Value: []byte(v)}
	}
	return records
}

var (
	partition0 = arroyo.Partition{Topic: topic, Number: 0}
	partition1 = arroyo.Partition{Topic: topic, Number: 1}
)

// What a fork runs is a lane of its own: its steps, their timers and their
// posts run one after the other, and the lane in front of them goes on.
func TestForkIsALane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		inside := false
		on := func(what string, d time.Duration) {
			if inside {
				t.Errorf("%s runs while something else of the fork does", what)
			}
			inside = true
			time.Sleep(d)
			log = append(log, what)
			inside = false
		}
		var front *arroyo.Lane
		s := newForked(step{
			submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				lane := arroyo.LaneOf(ctx)
				if lane == front {
					t.Error("behind a fork, LaneOf is not the fork")
				}
				lane.After(time.Second, func(ctx context.Context) error {
					if arroyo.LaneOf(ctx) != lane {
						t.Error("a timer of the fork does not run under its context")
					}
					on("timer", time.Second)
					return nil
				})
				lane.After(time.Second, func(context.Context) error {
					t.Error("a timer ran that was stopped")
					return nil
				})()
				go lane.Post(func(context.Context) error {
					on("post", time.Second)
					return nil
				})
				for _, m := range msgs {
					on(string(m.Payload.Value), 3*time.Second)
					m.Ack()
				}
				return nil
			},
			flush: func(context.Context) error { on("flush", 0); return nil },
			close: func(context.Context) error { on("close", 0); return nil },
		})
		submits := 0
		r := arroyo.NewRig(step{
			submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				front = arroyo.LaneOf(ctx)
				submits++
				return s.Submit(ctx, msgs)
			},
			flush: s.Flush,
			close: s.Close,
		})
		e := r.Assign(partition0)
		r.Feed(e, recordsFrom(0, "a")...)
		synctest.Wait()
		r.Feed(e, recordsFrom(1, "b")...)
		synctest.Wait()
		if submits != 2 {
			t.Errorf("%d Submits while the fork is busy, want 2", submits)
		}
		time.Sleep(10 * time.Second)
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff("a post timer b post timer flush close", strings.Join(log, " ")); diff != "" {
			t.Errorf("the fork ran (-want +got):\n%s", diff)
		}
	})
}

// What fails in a fork ends the run, and says where.
func TestForkFails(t *testing.T) {
	broken := errors.New("broken")
	for name, fails := range map[string]func(context.Context) error{
		"error":      func(context.Context) error { return broken },
		"panic":      func(context.Context) error { panic(broken) },
		"in a timer": func(ctx context.Context) error { return afterwards(ctx, broken) },
		"in a post": func(ctx context.Context) error {
			arroyo.LaneOf(ctx).Post(func(context.Context) error { return broken })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				account := arroyo.NewStep("insert")
				r := arroyo.NewRig(newForked(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
					account.Enter(ctx, len(msgs))
					return fails(ctx)
				}}))
				r.Feed(r.Assign(partition0), recordsFrom(0, "a")...)
				<-r.Done()
				at, ok := errors.AsType[*arroyo.StepError](r.Err())
				if !ok || at.Step != "insert" || !errors.Is(at, broken) {
					t.Errorf("the run ended with %v, want what is broken in step insert", r.Err())
				}
				if _, panicked := errors.AsType[*arroyo.PanicError](r.Err()); panicked != (name == "panic") {
					t.Errorf("PanicError: %v in %v", panicked, r.Err())
				}
			})
		})
	}
}

func afterwards(ctx context.Context, err error) error {
	arroyo.LaneOf(ctx).After(time.Second, func(context.Context) error { return err })
	return nil
}

// A fork is abandoned with its lane: Serve returns, jobs that were not begun
// do not run.
func TestForkIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		seen := 0
		r := arroyo.NewRig(newForked(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			seen += len(msgs)
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil
		}}))
		e := r.Assign(partition0)
		r.Feed(e, recordsFrom(0, "a")...)
		synctest.Wait()
		r.Feed(e, recordsFrom(1, "b")...)
		synctest.Wait()
		r.Abandon()
		<-r.Done()
		if seen != 1 || !errors.Is(cause, arroyo.ErrAbandoned) {
			t.Errorf("%d messages were begun, and the cause is %v; want 1 and %v", seen, cause, arroyo.ErrAbandoned)
		}
	})
}

// What a fork's goroutine fails with because the lane was abandoned is no
// failure, even if the context that says so ends before the fork's own.
func TestForkIsAboutToBeAbandoned(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			outer := newForked(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				return nil
			}})
			rig := arroyo.NewRig(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				lane := arroyo.LaneOf(ctx).Context()
				if err := outer.Submit(ctx, msgs); err != nil {
					return err
				}
				for range 1000 { // they end one after the other, and the fork's is one of them
					_, cancel := context.WithCancel(lane)
					context.AfterFunc(lane, cancel)
				}
				outer.fork.Go(func(context.Context) error {
					<-lane.Done()
					return lane.Err()
				})
				return nil
			}, close: outer.Close})
			rig.Feed(rig.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{})
			rig.Wait()
			rig.Abandon()
			<-rig.Done()
			if err := rig.Err(); err != nil {
				t.Fatalf("the run ended with %v", err)
			}
		})
	}
}

// Posts come from any goroutine, run in order on the lane's, and not once it
// has ended.
func TestPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lane *arroyo.Lane
		var log []int
		r := arroyo.NewRig(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			lane = arroyo.LaneOf(ctx)
			lane.Go(func(context.Context) error {
				for i := range 100 {
					lane.Post(func(context.Context) error { log = append(log, i); return nil })
				}
				return nil
			})
			time.Sleep(time.Second)
			if len(log) > 0 {
				t.Error("a post ran while Submit did")
			}
			arroyo.AckAll(msgs)
			return nil
		}})
		r.Feed(r.Assign(partition0), recordsFrom(0, "a")...)
		time.Sleep(2 * time.Second)
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		if len(log) != 100 || !slices.IsSorted(log) {
			t.Errorf("ran %v, want 100 in order", log)
		}
		lane.Post(func(context.Context) error { t.Error("a post ran after the end"); return nil })
		synctest.Wait()
	})
}

// A step behind a fork is part of the pipeline as any other: under the real
// run, in a rebalance.
func TestForkInARun(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var seen ledger
		m := startMember(t, broker, newForked(strategies.ForEachBatch(50, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			for _, row := range rows {
				seen.add("fork", row.Payload)
			}
			return nil
		})), opts)
		broker.WaitStable(group, 1)
		produce(broker, 1000)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		produce(broker, 1000)
		time.Sleep(10 * time.Second)
		for _, r := range rival.Consumed() {
			seen.add("rival", r)
		}
		rival.Leave()
		broker.WaitStable(group, 1)
		broker.WaitCaughtUp(group, topic)
		m.shutDown(t)
		seen.expectAll(t, broker, len(rival.Consumed())) // the rival commits nothing
		seen.expectOrder(t)
		expectCommitted(t, broker)
	})
}
