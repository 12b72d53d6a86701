package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// newQueuePipe is a pipeline that makes strings of its records and queues them.
func newQueuePipe(t *testing.T, size int) *pipe {
	return newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTask(text, strategies.Queue(size, next))
	})
}

// The steps in front of a queue and those behind it work at the same time, in
// order.
func TestQueueWorksOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(func(_ context.Context, m records) (string, error) {
				time.Sleep(time.Second)
				return value(m), nil
			}, strategies.Queue(10, next))
		})
		p.delay = time.Second
		e := p.assign(0)
		began := time.Now()
		var want []string
		for i := range 20 {
			p.feed(e, fmt.Sprint(i)) // each in a Submit of its own
			synctest.Wait()
			want = append(want, fmt.Sprint(i))
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 22*time.Second {
			t.Errorf("twenty messages took %v through two steps of a second each", took)
		}
		if diff := cmp.Diff(want, p.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		p.finish()
		p.expectClosed(t, false)
	})
}

// I9: while the next step is busy, no more than size messages are queued.
func TestI9QueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(func(ctx context.Context, m records) (string, error) {
				taken++
				return value(m), nil
			}, strategies.Queue(10, next))
		})
		p.delay = time.Minute
		e := p.assign(0)
		for i := range 100 {
			p.feed(e, fmt.Sprint(i))
			synctest.Wait()
		}
		// One is inside the next step, ten are queued, and Submit blocks with
		// one or with the few that were fed meanwhile.
		if taken < 12 || taken > 20 {
			t.Errorf("%d messages were taken, want a dozen", taken)
		}
		for range 10 { // a drain, which may need the lane, gets it, and that is all
			time.Sleep(time.Second)
			p.Drain(p.assign(1))
		}
		synctest.Wait()
		if taken > 40 {
			t.Errorf("after some drains of others it took %d messages", taken)
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		if n := len(slices.DeleteFunc(p.all(), func(v string) bool { return v == "|" })); n != 100 {
			t.Errorf("%d were handed on, want 100", n)
		}
	})
}

// A Submit that is larger than the queue goes through in pieces.
func TestQueueSmallerThanASubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueuePipe(t, 3)
		e := p.assign(0)
		p.feed(e, numbered(1000)...)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(numbered(1000), p.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// A flush comes behind what was queued before it. A drain finishes what is
// queued, also if Submit blocks at that moment.
func TestQueueDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueuePipe(t, 2)
		p.delay = time.Second
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "a0")
		synctest.Wait()
		p.feed(a, "a1")
		synctest.Wait()
		p.feed(a, "a2")
		synctest.Wait()
		p.feed(b, "b0", "b1", "b2") // blocks
		synctest.Wait()
		p.Drain(a)
		synctest.Wait()
		p.feed(b, "b3")
		time.Sleep(time.Minute)
		// Two of partition 1 were in the Submit that blocked.
		got := strings.Join(p.all(), " ")
		if want := "a0 a1 a2 b0 b1 | b2 b3"; got != want {
			t.Errorf("handed on %s, want %s", got, want)
		}
		if diff := cmp.Diff([]string{"a0 acked", "a1 acked", "a2 acked"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		p.finish()
		p.expectClosed(t, false)
	})
}

// What is queued of an epoch that is over is not handed on, and a Submit of it
// does not block.
func TestQueueFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueuePipe(t, 4)
		p.delay = time.Minute
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "a0")
		synctest.Wait()
		p.feed(b, "b0", "b1", "b2", "b3", "b4", "b5", "b6")
		time.Sleep(time.Second)
		p.Fence(b)
		synctest.Wait()
		p.feed(a, "a1", "a2")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a0", "a1", "a2"}, p.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// Nor is what was mixed with others before it was queued.
func TestQueueFenceOfMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(text, strategies.Batch(3, time.Hour, strategies.Unbatch(strategies.Queue(10, next))))
		})
		p.delay = time.Minute
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "a0", "a1", "a2")
		synctest.Wait() // inside the next step
		p.feed(a, "a3")
		synctest.Wait()
		p.feed(b, "b0")
		synctest.Wait()
		p.feed(a, "a4")
		synctest.Wait()
		p.Fence(b)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a0", "a1", "a2", "a3", "a4"}, p.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// A fence ends the next step's Submit with an error that is not a failure.
func TestQueueFenceInTheNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newQueuePipe(t, 4)
		p.delay = time.Minute
		a, b := p.assign(0), p.assign(1)
		p.feed(b, "b0")
		time.Sleep(time.Second)
		p.Fence(b)
		p.feed(a, "a0")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// What fails behind a queue ends the run, whatever the lane does, and the next
// step is closed as abandoned.
func TestQueueNextFails(t *testing.T) {
	broken := errors.New("broken")
	for kind, fails := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic(broken) },
	} {
		for _, when := range []string{"idle", "blocked in Submit", "in Close"} {
			t.Run(kind+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					end := &closing{Strategy: strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
						time.Sleep(time.Minute)
						return fails()
					}, strategies.Name("insert"))}
					r := arroyo.NewRig(strategies.RunTask(text, strategies.Queue(2, end)))
					e := r.Assign(arroyo.Partition{Topic: "events"})
					r.Feed(e, &kgo.Record{Topic: "events", Offset: 3})
					time.Sleep(time.Second)
					switch when {
					case "blocked in Submit":
						for i := range int64(10) {
							r.Feed(e, &kgo.Record{Topic: "events", Offset: 4 + i})
						}
					case "in Close":
						r.Stop()
					}
					<-r.Done()
					at, ok := errors.AsType[*arroyo.StepError](r.Err())
					if !ok || at.Step != "insert" || at.Offset != 3 || !errors.Is(at, broken) {
						t.Errorf("the run ended with %v, want what is broken in insert at offset 3", r.Err())
					}
					if len(end.closed) != 1 || end.closed[0] == nil {
						t.Errorf("the next step was closed under contexts with %v, want one that has ended", end.closed)
					}
				})
			})
		}
	}
}

// closing is a step that notes how it is closed.
type closing struct {
	arroyo.Strategy[string]
	closed []error
}

func (c *closing) Close(ctx context.Context) error {
	c.closed = append(c.closed, ctx.Err())
	return c.Strategy.Close(ctx)
}

// Under an ended context Close does not wait for a next step that hangs; it is
// closed once, by the goroutine that was inside it.
func TestQueueIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		end := &closing{Strategy: strategies.ForEach(func(context.Context, arroyo.Message[string]) error {
			<-release
			return nil
		}, strategies.Name("insert"))}
		closed := make(chan time.Time, 1)
		began := time.Now()
		queue := strategies.Queue(10, end)
		r := arroyo.NewRig(strategies.RunTask(text, &watched{Strategy: queue, closed: func() { closed <- time.Now() }}))
		e := r.Assign(arroyo.Partition{Topic: "events"})
		r.Feed(e, &kgo.Record{Offset: 0}, &kgo.Record{Offset: 1})
		synctest.Wait()
		r.Abandon()
		if took := (<-closed).Sub(began); took > 100*time.Millisecond {
			t.Errorf("Close returned after %v, want at once", took)
		}
		if len(end.closed) > 0 {
			t.Error("the next step was closed while a call of it is in progress")
		}
		time.Sleep(time.Minute)
		close(release)
		<-r.Done()
		if len(end.closed) != 1 || end.closed[0] == nil {
			t.Errorf("the next step was closed under contexts with %v, want one that has ended", end.closed)
		}
		if w, _ := r.Watermark(e); w != 1 {
			t.Errorf("the watermark is %d: the second message was handed on, or the first was not", w)
		}
	})
}

// watched is a step whose Close is seen to return.
type watched struct {
	arroyo.Strategy[string]
	closed func()
}

func (w *watched) Close(ctx context.Context) error {
	defer w.closed()
	return w.Strategy.Close(ctx)
}

// The steps behind a queue have their timers on its goroutine.
func TestQueueAndTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(10, strategies.Batch(100, 10*time.Second, strategies.RunTask(
				func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) (string, error) {
					return fmt.Sprint(len(b.Payload)), nil
				}, next)))
		})
		p.feed(p.assign(0), "a", "b", "c")
		time.Sleep(11 * time.Second)
		if diff := cmp.Diff([]string{"3"}, p.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// A queue that was never used closes the next step.
func TestQueueUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return step{strategies.RunTask(text, strategies.Queue(1, next)), func(context.Context) error { return nil }}
		})
		p.finish()
		p.expectClosed(t, false)
	})
}

// In a real run, shared and partitioned, with a hung step that is named.
func TestQueueInARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got list[string]
		build := func() arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(50, strategies.RunTask(text, strategies.Queue(5, into(&got))))
		}
		b := newPartitionedBench(t, 3, build)
		b.broker.Produce("events", numbered(300)...)
		b.settle(300)
		b.stopsWithin(time.Second)
		expectEach(t, 300, got.all(), nil)
	})
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBench(t, 1, strategies.Queue(50, strategies.ForEach(func(context.Context, records) error {
			<-release
			return nil
		}, strategies.Name("insert"))))
		defer close(release)
		b.put(0, "a")
		time.Sleep(time.Minute)
		err := b.stop()
		if left, ok := errors.AsType[*arroyo.AbandonedError](err); !ok || left.Step != "insert" {
			t.Errorf("Run: %v, want an AbandonedError that names insert", err)
		}
	})
}

func TestConformanceOfQueue(t *testing.T) {
	for _, size := range []int{1, 5, 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
				return strategies.Queue(size, next)
			}, number, strategytest.Capacity(3000))
		})
	}
	t.Run("of work", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Queue(100, strategies.RunTaskInParallel(4, slowSquare, strategies.Queue(10, next)))
		}, number, strategytest.Capacity(5000))
	})
}

func TestQueuePanics(t *testing.T) {
	for want, build := range map[string]func(){
		"Queue: a size of 0 is not positive":       func() { strategies.Queue(0, strategies.Noop[int]()) },
		"Queue: the next step is nil":              func() { strategies.Queue[int](1, nil) },
		"Queue: it takes neither Retry nor Timeou": func() { strategies.Queue(1, strategies.Noop[int](), strategies.Timeout(1)) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
					t.Errorf("panicked with %q, want %q in it", v, want)
				}
			}()
			build()
		})
	}
}
