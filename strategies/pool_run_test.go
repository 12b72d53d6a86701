package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// expectEach checks that each of the numbers below n is there once, and those
// that are there more often are in again.
func expectEach(t *testing.T, n int, got []string, again map[string]bool) {
	t.Helper()
	counts := make(map[string]int)
	for _, v := range got {
		counts[v]++
	}
	for i := range n {
		v := fmt.Sprint(i)
		if c := counts[v]; c == 0 || c > 1 && !again[v] {
			t.Errorf("%s was handed on %d times", v, c)
		}
	}
}

// In a real run, through a rebalance: nothing is lost, and nothing is done
// twice but what the rival, which commits nothing, had read.
func TestPoolInARun(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		var got list[string]
		b := newBench(t, 4, pools[name](20, func(ctx context.Context, m records) (string, error) {
			return value(m), pass(ctx, time.Duration(m.Payload.Offset%50)*time.Millisecond)
		}, into(&got)))
		b.broker.Produce("events", numbered(2000)...)
		time.Sleep(100 * time.Millisecond) // in the middle
		rival := b.joins()
		time.Sleep(10 * time.Second)
		again := make(map[string]bool)
		for _, r := range rival.Consumed() {
			again[string(r.Value)] = true
		}
		if n := len(again); n == 0 || n > 1000 {
			t.Errorf("the rival read %d records, want some of its half", n)
		}
		for _, v := range got.all() {
			if again[v] {
				t.Errorf("%s was done before its partition was given up, and the rival read it", v)
			}
		}
		rival.Leave()
		b.broker.WaitStable("g", 1)
		b.broker.WaitCaughtUp("g", "events")
		b.stopsWithin(time.Second)
		expectEach(t, 2000, got.all(), again)
	})
}

// I9: what waits for an old result is bounded by MaxInFlight.
func TestI9PoolMaxInFlight(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		var began list[string]
		b := newBench(t, 1, pools[name](4, func(ctx context.Context, m records) (string, error) {
			began.add(value(m))
			if m.Payload.Offset == 0 {
				<-release
			}
			return value(m), nil
		}, strategies.Noop[string]()), arroyo.MaxInFlight(1000))
		b.put(0, numbered(500)...)
		time.Sleep(time.Second)
		for range 20 {
			b.put(0, numbered(500)...)
			time.Sleep(time.Second)
		}
		n := len(began.all())
		if name == "RunTaskInParallel" && (n < 1000 || n > 2000) {
			t.Errorf("%d tasks behind one that hangs, want about 1000", n)
		}
		close(release)
		time.Sleep(time.Minute)
		b.settle(10_500)
		b.stopsWithin(time.Second)
	})
}

// A hung worker is named by the error of a drain that had to leave it.
func TestPoolNamesWhatHangs(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		release := make(chan struct{})
		b := newBench(t, 1, pools[name](4, func(ctx context.Context, m records) (string, error) {
			if m.Payload.Offset == 0 {
				<-release
			}
			return value(m), nil
		}, strategies.ForEach(func(context.Context, arroyo.Message[string]) error { return nil }), strategies.Name("fetch")))
		defer close(release)
		b.put(0, numbered(20)...)
		time.Sleep(time.Minute)
		if got := b.processor.Status().Partitions[0].Step; got != "fetch" {
			t.Errorf("Status says that the oldest record is in %q, want fetch", got)
		}
		err := b.stop()
		if left, ok := errors.AsType[*arroyo.AbandonedError](err); !ok || left.Step != "fetch" {
			t.Errorf("Run: %v, want an AbandonedError that names fetch", err)
		}
		synctest.Wait()
	})
}

// Partitioned processors have a pool for each partition.
func TestPoolInAPartitionedRun(t *testing.T) {
	forEachPool(t, func(t *testing.T, name string) {
		var got list[string]
		b := newPartitionedBench(t, 3, func() arroyo.Strategy[*kgo.Record] {
			return pools[name](5, func(ctx context.Context, m records) (string, error) {
				return value(m), pass(ctx, 10*time.Millisecond)
			}, into(&got))
		})
		b.broker.Produce("events", numbered(300)...)
		b.settle(300)
		b.stopsWithin(time.Second)
		expectEach(t, 300, got.all(), nil)
	})
}

// Tasks that wait take as long as n at once let them, and there are never more
// than n.
func TestPoolScalesWithItsNumber(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		forEachPool(t, func(t *testing.T, name string) {
			var (
				mu        sync.Mutex
				now, most int
			)
			count := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				now += by
				most = max(most, now)
			}
			p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
				return pools[name](n, func(ctx context.Context, m records) (string, error) {
					count(1)
					defer count(-1)
					return value(m), pass(ctx, time.Millisecond)
				}, next)
			})
			const tasks = 1000
			began := time.Now()
			p.feed(p.assign(0), numbered(tasks)...)
			if err := p.Settle(); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			p.finish()
			if most != n {
				t.Errorf("%d: there were %d tasks at once", n, most)
			}
			if want := time.Duration(tasks/n) * time.Millisecond; took < want || took > want*11/10+5*time.Millisecond {
				t.Errorf("%d: %d tasks of 1ms took %v, want about %v", n, tasks, took, want)
			}
		})
	}
}
