package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// gauge counts how many calls are in progress at most, in all and by key.
type gauge struct {
	mu       sync.Mutex
	now, max int
	keys     map[string]int
	maxKey   int
	calls    int
}

func (g *gauge) enter(key string) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys == nil {
		g.keys = make(map[string]int)
	}
	g.now++
	g.calls++
	g.keys[key]++
	g.max = max(g.max, g.now)
	g.maxKey = max(g.maxKey, g.keys[key])
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.now--
		g.keys[key]--
	}
}

// keyed makes values "key=i", of so many keys.
func keyed(n, keys int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("k%d=%d", i%keys, i)
	}
	return values
}

// I4: results come in the order that is promised, whatever the tasks take, and
// n tasks run at the same time.
func TestI4PoolOrder(t *testing.T) {
	for _, n := range []int{1, 2, 7, 100} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			forEachPool(t, func(t *testing.T, name string) {
				rng := rand.New(rand.NewPCG(uint64(n), 1))
				var takes [4000]time.Duration
				for i := range takes {
					takes[i] = time.Duration(rng.IntN(1+rng.IntN(2)*20)) * time.Millisecond
				}
				var g gauge
				p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
					return pools[name](n, func(ctx context.Context, m records) (string, error) {
						defer g.enter(string(m.Payload.Key))()
						var i int
						fmt.Sscan(value(m), &i)
						if takes[i] > 0 {
							time.Sleep(takes[i])
						}
						return fmt.Sprintf("%d %s %d", m.Payload.Partition, m.Payload.Key, m.Payload.Offset), nil
					}, next)
				})
				const partitions = 3
				for i := range int32(partitions) {
					e := p.assign(i)
					p.feed(e, keyed(1000, 50)...)
				}
				if err := p.Settle(); err != nil {
					t.Fatal(err)
				}
				p.finish()
				p.expectClosed(t, false)

				byPartition, byKey := make(map[int][]int), make(map[string][]int)
				for _, out := range p.all() {
					if out == "|" {
						continue
					}
					var partition, offset int
					var key string
					fmt.Sscan(out, &partition, &key, &offset)
					byPartition[partition] = append(byPartition[partition], offset)
					key = fmt.Sprint(partition, key)
					byKey[key] = append(byKey[key], offset)
				}
				inOrder := true
				for _, offsets := range byPartition {
					inOrder = inOrder && slices.IsSorted(offsets)
					slices.Sort(offsets)
					if len(slices.Compact(offsets)) != 1000 {
						t.Fatalf("%d results of a partition, want 1000", len(offsets))
					}
				}
				if name == "RunTaskInParallel" && !inOrder {
					t.Error("the results of a partition are not in order")
				}
				if name == "RunTaskUnordered" && n > 1 && inOrder {
					t.Error("the results are in order: nothing was handed on before its time")
				}
				for key, offsets := range byKey {
					if name == "RunTaskByKey" && !slices.IsSorted(offsets) {
						t.Errorf("the results of key %s are not in order", key)
					}
				}
				want := n
				if name == "RunTaskByKey" {
					want = min(n, 50)
					if g.maxKey != 1 {
						t.Errorf("%d tasks of a key at once", g.maxKey)
					}
				}
				if g.max != want || g.calls != 1000*partitions {
					t.Errorf("%d tasks at once and %d in all, want %d and %d", g.max, g.calls, want, 1000*partitions)
				}
			})
		})
	}
}

// A message that takes long holds up no other task, also not those that a
// worker would have taken together with it.
func TestSlowTaskHoldsUpNoOther(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		began := time.Now()
		release := make(chan struct{})
		var last time.Duration
		var mu sync.Mutex
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				if value(m) == "slow" {
					<-release
				}
				mu.Lock()
				defer mu.Unlock()
				last = time.Since(began)
				return value(m), nil
			}, next)
		})
		e := p.assign(0)
		values := keyed(10_000, 10_000)
		values[5000] = "k=slow" // by then a worker takes many at once
		p.feed(e, values...)
		time.Sleep(time.Second)
		mu.Lock()
		if last > 100*time.Millisecond {
			t.Errorf("the last of the other tasks was done after %v", last)
		}
		mu.Unlock()
		want := 9999
		if name == "RunTaskInParallel" {
			want = 5000
		}
		if n := len(p.all()); n != want {
			t.Errorf("%d results while one is not there, want %d", n, want)
		}
		if n := p.Unsettled(e); n != 10_000-want {
			t.Errorf("%d are unsettled, want %d", n, 10_000-want)
		}
		close(release)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// One partition's hung task keeps no other from flowing, from being flushed
// and from being drained.
func TestHungTaskOfAnotherPartition(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				if value(m) == "hung" {
					<-release
				}
				return value(m), nil
			}, next)
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(b, "hung")
		p.feed(b, numbered(100)...) // ordered: results that wait for the first
		synctest.Wait()
		p.feed(a, "a0", "a1")
		synctest.Wait()
		if n := p.Unsettled(a); n != 0 {
			t.Errorf("%d of the other partition are unsettled", n)
		}
		before := p.flushN
		p.Drain(a)
		synctest.Wait()
		if p.flushN != before+1 {
			t.Error("the flush of the other partition was not passed on")
		}
		if n := p.Unsettled(b); n == 0 {
			t.Error("the hung task is settled")
		}
		p.Drain(b)
		synctest.Wait()
		if p.flushN != before+1 {
			t.Error("the flush of the hung partition was passed on before its result")
		}
		close(release)
		synctest.Wait()
		if p.flushN != before+2 || p.Unsettled(b) != 0 {
			t.Errorf("%d flushes and %d unsettled after the hung task returned, want %d and 0", p.flushN, p.Unsettled(b), before+2)
		}
		p.finish()
		p.expectClosed(t, false)
	})
}

// At a drain the tasks in progress are finished and handed on, before the
// flush; what was not begun is returned; other partitions go on.
func TestPoolDrain(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		var g gauge
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](3, func(ctx context.Context, m records) (string, error) {
				defer g.enter("")()
				return value(m), pass(ctx, 10*time.Second)
			}, next)
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "a0", "a1")
		p.feed(b, "b0", "b1", "b2")
		p.feed(a, "a2", "a3")
		time.Sleep(5 * time.Second) // a0, a1, b0 are in progress
		p.Drain(a)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a2 returned", "a3 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("at once (-want +got):\n%s", diff)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a0 acked", "a1 acked", "a2 returned", "a3 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("in the end (-want +got):\n%s", diff)
		}
		got := p.all()
		slices.Sort(got[:min(3, len(got))])
		// b0 is done in the same moment, and is not what the flush is about.
		if i := slices.Index(got, "|"); i < 0 || !slices.Contains(got[:i], "a0") || !slices.Contains(got[:i], "a1") {
			t.Errorf("handed on %q, want the flush behind a0 and a1", got)
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if n := g.calls; n != 5 {
			t.Errorf("%d tasks were begun, want 5", n)
		}
		if w, _ := p.Watermark(a); w != 2 {
			t.Errorf("the next owner begins at %d, want 2", w)
		}
		p.finish()
		p.expectClosed(t, false)
	})
}

// What is not begun is finished all the same if something behind it was: that
// would be done again otherwise.
func TestPoolDrainRepeatsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools["RunTaskByKey"](2, func(ctx context.Context, m records) (string, error) {
				return value(m), pass(ctx, 10*time.Second)
			}, next)
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "x=a0", "x=a1", "y=a2", "x=a3")
		p.feed(b, "x=b0", "z=b1")
		time.Sleep(5 * time.Second) // a0 and a2 are in progress
		p.Drain(a, b)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a0 acked", "a1 acked", "a2 acked", "a3 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"b0 returned", "b1 returned"}, p.verdicts(b)); diff != "" {
			t.Errorf("verdicts of the other partition (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// Results behind a message that a Retry has returned are not handed on: the
// next owner makes them again.
func TestPoolRetryInFrontOfResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskInParallel(5, func(ctx context.Context, m records) (string, error) {
				if value(m) == "bad" {
					return "", errDown
				}
				return value(m), nil
			}, next, strategies.Retry(strategies.RetryPolicy{Min: time.Hour, Max: time.Hour}))
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "a0", "bad", "a2", "a3")
		p.feed(b, "b0")
		synctest.Wait()
		p.Drain(a)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a0 acked", "bad returned", "a2 returned", "a3 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		p.finish()
		if got := p.all(); slices.Contains(got, "a2") || slices.Contains(got, "a3") || !slices.Contains(got, "b0") {
			t.Errorf("handed on %q", got)
		}
	})
}

// At the end of a run, Close waits for the tasks in progress and hands their
// results on.
func TestPoolEnd(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				return value(m), pass(ctx, 10*time.Second)
			}, next)
		})
		a := p.assign(0)
		p.feed(a, "a0", "a1", "a2", "a3")
		time.Sleep(5 * time.Second)
		began := time.Now()
		p.finish()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the end took %v, want the 5s that tasks take on", took)
		}
		p.expectClosed(t, false)
		got := p.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a0", "a1", "|"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"a0 acked", "a1 acked", "a2 returned", "a3 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
	})
}

// A fenced epoch's results are not handed on, and nothing waits for its tasks,
// even if they ignore their context.
func TestPoolFence(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		t.Run(fmt.Sprintf("ignores=%v", ignores), func(t *testing.T) {
			forEachPool(t, func(t *testing.T, name string) {
				release := make(chan struct{})
				p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
					return pools[name](4, func(ctx context.Context, m records) (string, error) {
						switch {
						case m.Payload.Partition == 1 && ignores:
							<-release
						case m.Payload.Partition == 1:
							<-ctx.Done()
							return "", ctx.Err()
						}
						return value(m), pass(ctx, time.Second)
					}, next)
				})
				a, b := p.assign(0), p.assign(1)
				p.feed(b, "b0")
				p.feed(a, "a0")
				p.feed(b, "b1", "b2")
				time.Sleep(2 * time.Second) // a0 is done
				p.FlushAtBound()            // waits for the others
				synctest.Wait()
				if diff := cmp.Diff([]string{"a0"}, p.all()); diff != "" {
					t.Errorf("before the fence (-want +got):\n%s", diff)
				}
				p.Fence(b)
				synctest.Wait()
				if diff := cmp.Diff([]string{"a0", "|"}, p.all()); diff != "" {
					t.Errorf("after the fence (-want +got):\n%s", diff)
				}
				p.feed(a, "a1")
				time.Sleep(2 * time.Second)
				p.Stop()
				synctest.Wait()
				if p.expectClosed(t, false); ignores {
					close(release)
				}
				<-p.Done()
				if err := p.Err(); err != nil {
					t.Errorf("the lane ended with %v", err)
				}
				if diff := cmp.Diff([]string{"a0", "|", "a1", "|"}, p.all()); diff != "" {
					t.Errorf("in the end (-want +got):\n%s", diff)
				}
				if w, _ := p.Watermark(a); w != 2 {
					t.Errorf("the watermark is %d, want 2", w)
				}
			})
		})
	}
}

// A task that fails ends the run. Nothing behind it of its partition is handed
// on, and the watermark stays below it.
func TestPoolTaskFails(t *testing.T) {
	broken := errors.New("broken")
	for kind, fails := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic(broken) },
	} {
		t.Run(kind, func(t *testing.T) {
			forEachPool(t, func(t *testing.T, name string) {
				p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
					return pools[name](4, func(ctx context.Context, m records) (string, error) {
						if value(m) == "bad" {
							return "", fails()
						}
						return value(m), nil
					}, next, strategies.Name("work"))
				})
				a := p.assign(0)
				p.feed(a, "a0", "a1")
				synctest.Wait()
				p.feed(a, "k=bad", "k=a3", "a4")
				<-p.Done()
				at, ok := errors.AsType[*arroyo.StepError](p.Err())
				if !ok || at.Step != "work" || at.Epoch != a || at.Offset != 2 || !errors.Is(at, broken) {
					t.Errorf("the run ended with %v, want what is broken in work at offset 2", p.Err())
				}
				if panicked, ok := errors.AsType[*arroyo.PanicError](p.Err()); ok != (kind == "panic") {
					t.Errorf("PanicError: %v", ok)
				} else if ok && !strings.Contains(string(panicked.Stack), "pool_test.go") {
					t.Errorf("the stack does not show where it panicked:\n%s", panicked.Stack)
				}
				got := p.all()
				if slices.Contains(got, "bad") || name != "RunTaskUnordered" && slices.Contains(got, "a3") || name == "RunTaskInParallel" && slices.Contains(got, "a4") {
					t.Errorf("handed on %q", got)
				}
				if w, _ := p.Watermark(a); w != 2 {
					t.Errorf("the watermark is %d, want 2", w)
				}
				p.expectClosed(t, true)
			})
		})
	}
}

// What a task says of its message is its verdict.
func TestPoolVerdicts(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](4, func(_ context.Context, m records) (string, error) {
				switch value(m) {
				case "drop":
					return "", fmt.Errorf("not wanted: %w", arroyo.Drop)
				case "invalid":
					return "", fmt.Errorf("garbage: %w", arroyo.Invalid(errDown))
				}
				return value(m), nil
			}, next, strategies.Name("work"))
		})
		a := p.assign(0)
		p.feed(a, "a0", "drop", "a2", "invalid", "a4")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		if diff := cmp.Diff([]string{"a0 acked", "drop acked", "a2 acked", "invalid rejected", "a4 acked"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		got := p.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a0", "a2", "a4", "|"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		for _, v := range p.Verdicts() {
			if at, ok := errors.AsType[*arroyo.StepError](v.Err); v.Kind == arroyo.Rejected && (!ok || at.Step != "work" || at.Offset != 3 || !errors.Is(at, errDown)) {
				t.Errorf("rejected with %v", v.Err)
			}
		}
	})
}

// I9: with all workers busy, Submit blocks when a few messages wait for each,
// and it hands on results meanwhile.
func TestI9PoolBackpressure(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		const n = 4
		submitted := 0
		release := make(chan struct{})
		var once sync.Once
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			pool := pools[name](n, func(ctx context.Context, m records) (string, error) {
				if m.Payload.Offset%1000 == 500 {
					time.Sleep(time.Minute)
				} else {
					<-release
				}
				return value(m), nil
			}, next)
			return front{Forward: arroyo.ForwardTo(pool), submit: func(msgs []records) { submitted += len(msgs) }}
		})
		a := p.assign(0)
		p.feed(a, numbered(10_000)...)
		synctest.Wait()
		if submitted < 2*n || submitted > 8*n {
			t.Errorf("%d messages were taken while none of %d tasks is done, want about %d", submitted, n, 3*n)
		}
		for range 10 { // a drain, which may need the lane, gets it, and that is all
			time.Sleep(time.Second)
			p.Drain(p.assign(1))
		}
		synctest.Wait()
		if submitted > 20*n {
			t.Errorf("after some drains of others it took %d messages", submitted)
		}
		once.Do(func() { close(release) })
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// While Submit blocks, results are handed on.
func TestPoolHandsOnWhileItBlocks(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				if m.Payload.Offset > 1 {
					<-release
				} else {
					time.Sleep(time.Minute)
				}
				return value(m), nil
			}, next)
		})
		a := p.assign(0)
		p.feed(a, numbered(1000)...)
		time.Sleep(2 * time.Minute)
		got := p.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"0", "1"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		close(release)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// A Submit that blocks because all workers hang lets another partition's drain
// through, and its own epoch's fence.
func TestPoolSubmitGivesWay(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				if m.Payload.Partition == 0 {
					return value(m), nil
				}
				<-release
				return value(m), nil
			}, next)
		})
		a, b, c := p.assign(0), p.assign(1), p.assign(2)
		p.feed(a, "a0")
		synctest.Wait()
		p.feed(b, numbered(200)...) // hangs, and fills the pool
		synctest.Wait()
		p.feed(a, "a1")
		p.feed(c, numbered(200)...)
		before := p.flushN
		p.Drain(a)
		synctest.Wait()
		if p.flushN != before+1 || p.Unsettled(a) != 0 {
			t.Errorf("partition 0 is not drained: %d flushes, %d unsettled", p.flushN-before, p.Unsettled(a))
		}
		p.Fence(b)
		synctest.Wait()
		p.Drain(c)
		synctest.Wait()
		if n := p.Unsettled(c); n > 2 {
			t.Errorf("%d of partition 2 are unsettled, want what was begun at the most", n)
		}
		close(release)
		synctest.Wait()
		if n := p.Unsettled(c); n != 0 {
			t.Errorf("%d of partition 2 are unsettled after all", n)
		}
		p.finish()
		for _, v := range p.verdicts(c) {
			if strings.HasSuffix(v, "rejected") {
				t.Errorf("verdict %s", v)
			}
		}
	})
}

// Under an ended context Close hands nothing on and does not wait for a task,
// and the next step is not called any more once it is closed.
func TestPoolIsAbandoned(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				<-release
				return value(m), nil
			}, next)
		})
		a := p.assign(0)
		p.feed(a, numbered(50)...)
		synctest.Wait()
		p.FlushAtBound()
		synctest.Wait()
		p.Abandon()
		synctest.Wait()
		p.expectClosed(t, true)
		select {
		case <-p.Done():
			t.Error("the lane ended before the tasks returned")
		default:
		}
		close(release)
		<-p.Done()
		p.expectClosed(t, true)
		if got := p.all(); len(got) > 0 {
			t.Errorf("handed on %q", got)
		}
		if err := p.Err(); err != nil {
			t.Errorf("the lane ended with %v", err)
		}
	})
}

// An error and a panic of the next step end the run, also when they come while
// no Submit is in progress, or while one of a fenced epoch is.
func TestPoolNextFails(t *testing.T) {
	broken := errors.New("broken")
	for kind, fails := range map[string]func() error{
		"error": func() error { return broken },
		"panic": func() error { panic(broken) },
	} {
		t.Run(kind, func(t *testing.T) {
			forEachPool(t, func(t *testing.T, name string) {
				r := arroyo.NewRig(pools[name](1, func(ctx context.Context, m records) (string, error) {
					time.Sleep(time.Second)
					return value(m), nil
				}, strategies.ForEach(func(context.Context, arroyo.Message[string]) error { return fails() }, strategies.Name("insert"))))
				r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Topic: "events", Offset: 3})
				<-r.Done()
				at, ok := errors.AsType[*arroyo.StepError](r.Err())
				if !ok || at.Step != "insert" || at.Offset != 3 || !errors.Is(at, broken) {
					t.Errorf("the run ended with %v, want what is broken in insert at offset 3", r.Err())
				}
			})
		})
	}
}

// An error of the next step that is about an epoch that is over is no failure,
// whenever it comes.
func TestPoolNextFailsForAFence(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) { return value(m), nil }, next)
		})
		p.delay = time.Minute
		a, b := p.assign(0), p.assign(1)
		p.feed(b, "b0")
		time.Sleep(time.Second) // it is inside the next step
		p.Fence(b)              // which returns the context's error
		p.feed(a, "a0")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// A failure of the next step counts also if the messages that are submitted at
// that moment are of an epoch that is over.
func TestPoolNextFailsInAFencedSubmit(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		broken := errors.New("broken")
		release := make(chan struct{})
		p := newPipe(t, func(arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				if m.Payload.Partition == 1 {
					<-release
					return value(m), nil
				}
				<-ctx.Done()
				return "", ctx.Err()
			}, strategies.ForEach(func(context.Context, arroyo.Message[string]) error { return broken }))
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(b, "b0")
		synctest.Wait()
		p.feed(a, numbered(1000)...) // its Submit blocks
		synctest.Wait()
		p.Fence(a)
		close(release)
		<-p.Done()
		if !errors.Is(p.Err(), broken) {
			t.Errorf("the lane ended with %v, want %v", p.Err(), broken)
		}
	})
}

// The result of a task that ignored that its epoch is over is not handed on.
func TestPoolLateResult(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				time.Sleep(time.Minute)
				return value(m), nil
			}, next)
		})
		a := p.assign(0)
		p.feed(a, "a0")
		synctest.Wait()
		p.Fence(a)
		time.Sleep(2 * time.Minute)
		if got := p.all(); len(got) > 0 {
			t.Errorf("handed on %q", got)
		}
		p.finish()
	})
}

// What is drained while the lane is inside the next step is not begun by the
// workers, who do not wait for the lane.
func TestPoolDrainWhileNextBlocks(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		var g gauge
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](1, func(ctx context.Context, m records) (string, error) {
				defer g.enter("")()
				time.Sleep(time.Second)
				return value(m), nil
			}, next)
		})
		p.delay = time.Minute
		a := p.assign(0)
		p.feed(a, "a0", "a1", "a2", "a3", "a4")
		time.Sleep(2500 * time.Millisecond) // a0 is inside the next step, a2 with the worker
		p.Drain(a)
		time.Sleep(30 * time.Second)
		if diff := cmp.Diff([]string{"a3 returned", "a4 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts while the next step blocks (-want +got):\n%s", diff)
		}
		p.finish()
		if g.calls != 3 {
			t.Errorf("%d tasks were begun, want 3", g.calls)
		}
	})
}

// Close waits for what is in progress also if no Flush came before it.
func TestPoolCloseAlone(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			pool := pools[name](2, func(ctx context.Context, m records) (string, error) {
				return value(m), pass(ctx, time.Minute)
			}, next)
			return step{pool, func(context.Context) error { return nil }}
		})
		a := p.assign(0)
		p.feed(a, "a0", "a1")
		synctest.Wait()
		p.finish()
		p.expectClosed(t, false)
		got := p.all()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"a0", "a1"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
	})
}

// step is a strategy with another Flush.
type step struct {
	arroyo.Strategy[*kgo.Record]
	flush func(context.Context) error
}

func (s step) Flush(ctx context.Context) error { return s.flush(ctx) }

// A batch of several partitions keeps the order of each of them.
func TestPoolOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		takes := make([]time.Duration, 1000)
		for i := range takes {
			takes[i] = time.Duration(rng.IntN(1000)) * time.Millisecond
		}
		calls := make(chan int, 1000)
		for i := range 1000 {
			calls <- i
		}
		var g gauge
		got := make(map[int32][]int64)
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Batch(7, time.Second, strategies.RunTaskInParallel(5,
				func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) (string, error) {
					defer g.enter("")()
					time.Sleep(takes[<-calls])
					return "", nil
				}, strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
					for r := range m.Records() {
						got[r.Partition] = append(got[r.Partition], r.Offset)
					}
					return nil
				})))
		})
		var es []arroyo.Epoch
		for i := range int32(3) {
			es = append(es, p.assign(i))
		}
		for range 40 {
			for _, e := range es {
				p.feed(e, numbered(1+rng.IntN(5))...)
			}
			synctest.Wait()
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		for i, e := range es {
			if !slices.IsSorted(got[int32(i)]) || int64(len(got[int32(i)])) != p.offsets[e] {
				t.Errorf("partition %d: %d results, in order: %v; want %d", i, len(got[int32(i)]), slices.IsSorted(got[int32(i)]), p.offsets[e])
			}
		}
		if g.max != 5 {
			t.Errorf("%d tasks at once, want 5", g.max)
		}
	})
}

// The task's context is the epoch's, and has its lane.
func TestPoolContext(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		var cause error
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](2, func(ctx context.Context, m records) (string, error) {
				arroyo.LaneOf(ctx)
				if arroyo.Draining(ctx) == nil {
					t.Error("a task cannot see a drain")
				}
				<-ctx.Done()
				cause = context.Cause(ctx)
				return "", ctx.Err()
			}, next)
		})
		a := p.assign(0)
		p.feed(a, "a0")
		synctest.Wait()
		p.Fence(a)
		synctest.Wait()
		if !errors.Is(cause, arroyo.ErrFenced) {
			t.Errorf("the context's cause is %v, want %v", cause, arroyo.ErrFenced)
		}
		p.finish()
	})
}

// Retry in a worker holds up that worker's message alone, and gives way to a
// drain.
func TestPoolRetry(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return pools[name](3, func(ctx context.Context, m records) (string, error) {
				if strings.HasPrefix(value(m), "bad") {
					return "", errDown
				}
				return value(m), nil
			}, next, strategies.Retry(strategies.RetryPolicy{Min: time.Minute, Max: time.Minute}), strategies.Name("work"))
		})
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "bad0")
		p.feed(b, "b0", "b1", "b2")
		synctest.Wait()
		if n := p.Unsettled(b); n != 0 {
			t.Errorf("%d of the other partition wait for a retry", n)
		}
		time.Sleep(150 * time.Second)
		if n := p.Counts("work")["retries"]; n != 2 {
			t.Errorf("%d retries were counted, want 2", n)
		}
		p.Drain(a)
		synctest.Wait()
		if diff := cmp.Diff([]string{"bad0 returned"}, p.verdicts(a)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

func TestPoolsPanic(t *testing.T) {
	f := func(context.Context, records) (int, error) { return 0, nil }
	end := strategies.Noop[int]()
	for want, build := range map[string]func(){
		"RunTaskInParallel: a number of 0 at once is not positive": func() { strategies.RunTaskInParallel(0, f, end) },
		"RunTaskInParallel: the task is nil":                       func() { strategies.RunTaskInParallel[*kgo.Record](1, nil, end) },
		"RunTaskInParallel: the next step is nil":                  func() { strategies.RunTaskInParallel(1, f, nil) },
		"RunTaskUnordered: a number of -1 at once":                 func() { strategies.RunTaskUnordered(-1, f, end) },
		"RunTaskByKey: the key function is nil": func() {
			strategies.RunTaskByKey[*kgo.Record, int, string](1, nil, f, end)
		},
		"RunTaskByKey: the task is nil": func() { strategies.RunTaskByKey(1, byRecordKey, nil, end) },
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

// A panic of the key function is located.
func TestKeyFunctionPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(strategies.RunTaskByKey(2, func(m records) string {
			if m.Payload.Offset == 4 {
				panic("no key")
			}
			return ""
		}, text, strategies.Noop[string](), strategies.Name("work")))
		e := r.Assign(arroyo.Partition{Topic: "events"})
		for i := range int64(6) {
			r.Feed(e, &kgo.Record{Topic: "events", Offset: i})
		}
		<-r.Done()
		at, ok := errors.AsType[*arroyo.StepError](r.Err())
		if _, panicked := errors.AsType[*arroyo.PanicError](r.Err()); !ok || !panicked || at.Step != "work" || at.Offset != 4 {
			t.Errorf("the run ended with %v, want a panic in work at offset 4", r.Err())
		}
	})
}

// front is a step that looks at what goes to the one behind it.
type front struct {
	arroyo.Forward[*kgo.Record]
	submit func([]records)
	flush  func(context.Context)
}

func (f front) Submit(ctx context.Context, msgs []records) error {
	if f.submit != nil {
		f.submit(msgs)
	}
	return f.Forward.Submit(ctx, msgs)
}

func (f front) Flush(ctx context.Context) error {
	if f.flush != nil {
		f.flush(ctx)
	}
	return f.Forward.Flush(ctx)
}
