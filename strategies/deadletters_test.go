package strategies_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// forEachRejecting runs a test of every step that calls a function of one
// message and takes a Retry, each in a bubble and with dead letters.
func forEachRejecting(t *testing.T, test func(t *testing.T, start func(f func(context.Context, records) error, opts ...strategies.Option) *bench)) {
	steps := maps.Clone(retrying)
	for name, pool := range pools {
		steps[name] = func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
			return pool(3, func(ctx context.Context, m records) (string, error) { return value(m), f(ctx, m) }, strategies.Noop[string](), opts...)
		}
	}
	steps["Unfold"] = func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
		return strategies.Unfold(func(ctx context.Context, m records) ([]int, error) { return []int{1, 2}, f(ctx, m) }, strategies.Noop[int](), opts...)
	}
	for name, build := range steps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("dead", 1))
				test(t, func(f func(context.Context, records) error, opts ...strategies.Option) *bench {
					return benchOn(t, broker, build(f, append(opts, strategies.Name("write"))...),
						arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead"}))
				})
			})
		})
	}
}

// reasons returns why the dead letters are some, by their values.
func (b *bench) reasons() map[string]string {
	b.t.Helper()
	reasons := make(map[string]string)
	for _, r := range b.broker.Records("dead") {
		original, origin, err := arroyo.ReadDeadLetter(r)
		if err != nil {
			b.t.Fatal(err)
		}
		if _, ok := reasons[string(original.Value)]; ok {
			b.t.Errorf("two letters of %q", original.Value)
		}
		reasons[string(original.Value)] = origin.Step + ": " + origin.Reason
	}
	return reasons
}

// Attempts, and then a dead letter with the last error as its reason. What
// comes behind it goes on.
func TestI7RetryThenDeadLetter(t *testing.T) {
	forEachRejecting(t, func(t *testing.T, start func(func(context.Context, records) error, ...strategies.Option) *bench) {
		var mu sync.Mutex
		calls := make(map[string]int)
		b := start(func(_ context.Context, m records) error {
			mu.Lock()
			defer mu.Unlock()
			calls[value(m)]++
			switch n := calls[value(m)]; {
			case value(m) == "bad", value(m) == "invalid" && n < 3, value(m) == "heals" && n < 4:
				return fmt.Errorf("call %d: %w", n, errDown)
			case value(m) == "invalid":
				return arroyo.Invalid(fmt.Errorf("call %d: not a number", n))
			}
			return nil
		}, strategies.Retry(strategies.RetryPolicy{Attempts: 4, GiveUp: arroyo.Invalid}))
		b.put(0, "good", "bad", "invalid", "heals", "more")
		b.settle(5)
		b.stopsWithin(time.Second)
		want := map[string]string{"bad": "write: call 4: " + errDown.Error(), "invalid": "write: call 3: not a number"}
		if diff := cmp.Diff(want, b.reasons()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int{"good": 1, "bad": 4, "invalid": 3, "heals": 4, "more": 1}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// A retry that a shutdown or a revocation interrupts, in a back-off or in its
// last attempt, is not a dead letter: the next owner tries it.
func TestI7InterruptedRetryIsNoDeadLetter(t *testing.T) {
	for _, tt := range []struct {
		name     string
		attempts int
		takes    time.Duration // each
	}{
		{"in a back-off", 1000, 0},
		{"in the last attempt", 1, 10 * time.Second},
	} {
		for _, end := range []string{"shutdown", "revocation"} {
			t.Run(tt.name+"/"+end, func(t *testing.T) {
				forEachRejecting(t, func(t *testing.T, start func(func(context.Context, records) error, ...strategies.Option) *bench) {
					var up atomic.Bool
					work := func(ctx context.Context, _ records) error {
						if up.Load() {
							return nil
						}
						time.Sleep(tt.takes)
						return errDown
					}
					policy := strategies.RetryPolicy{Attempts: tt.attempts, Min: 5 * time.Second, Max: time.Minute, GiveUp: arroyo.Invalid}
					b := start(work, strategies.Retry(policy))
					b.put(0, "0")
					b.put(1, "1")
					time.Sleep(5 * time.Second) // in the middle
					gone := []int32{0, 1}
					if end == "revocation" {
						rival := b.joins() // takes one of the two
						gone = rival.Assigned()
						rival.Leave()
					} else {
						b.stopsWithin(11 * time.Second)
					}
					if len(gone) == 0 {
						t.Fatal("no partition was given up")
					}
					for _, p := range gone {
						b.expectCommitted(p, 0)
						if why, ok := b.reasons()[fmt.Sprint(p)]; ok {
							t.Errorf("the message of partition %d is a dead letter: %s", p, why)
						}
					}
					up.Store(true)
					if end == "shutdown" {
						b = start(work)
					}
					b.settle(2)
					b.stopsWithin(time.Second)
				})
			})
		}
	}
}

// A retry of a batch with rejected rows: they are not given to the function
// again, and keep their own reasons; GiveUp rejects the others.
func TestI7RetryOfABatchWithRejectedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls list[[]string]
		b := faultRig(t, strategies.ForEachBatch(5, time.Second, func(_ context.Context, rows []records) error {
			var got []string
			for _, row := range rows {
				got = append(got, value(row))
				switch {
				case value(row) == "1":
					row.Reject(fmt.Errorf("call %d: one is odd", len(calls.all())+1))
				case value(row) == "3" && len(rows) < 5:
					row.Ack()
					row.Reject(errDown)
				}
			}
			calls.add(got)
			return fmt.Errorf("call %d: %w", len(calls.all()), errDown)
		}, strategies.Retry(strategies.RetryPolicy{Attempts: 3, GiveUp: arroyo.Invalid}), strategies.Name("write")))
		b.put(0, numbered(5)...)
		b.settle(5)
		b.stopsWithin(time.Second)
		if diff := cmp.Diff([][]string{numbered(5), {"0", "2", "3", "4"}, {"0", "2", "4"}}, calls.all()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		last := "write: call 3: " + errDown.Error()
		want := map[string]string{"0": last, "1": "write: call 1: one is odd", "2": last, "4": last}
		if diff := cmp.Diff(want, b.reasons()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// A result that is rejected rejects every message that is in it, and of the
// children of one message the first rejection counts.
func TestI7RejectedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sum := func(sum int, m records) (int, error) { return sum + len(value(m)), nil }
		b := faultRig(t, strategies.Reduce(4, time.Second, func() int { return 0 }, sum,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[int]) error {
				if m.Payload > 4 {
					return arroyo.Invalid(fmt.Errorf("%d is too much", m.Payload))
				}
				return nil
			}, strategies.Name("sum"))))
		b.put(0, "a", "b", "c", "d", "e", "f", "gggg", "h")
		b.settle(8)
		b.stopsWithin(time.Second)
		want := map[string]string{}
		for _, v := range []string{"e", "f", "gggg", "h"} {
			want[v] = "sum: 7 is too much"
		}
		if diff := cmp.Diff(want, b.reasons()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		split := func(_ context.Context, m records) ([]string, error) {
			return slices.Collect(func(yield func(string) bool) {
				for _, r := range value(m) {
					if !yield(string(r)) {
						return
					}
				}
			}), nil
		}
		b := faultRig(t, strategies.Unfold(split, strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
			if m.Payload < "5" {
				return nil
			}
			return arroyo.Invalid(fmt.Errorf("%s is too much", m.Payload))
		}, strategies.Name("digit"))))
		b.put(0, "1234", "2738", "", "9")
		b.settle(4)
		b.stopsWithin(time.Second)
		if diff := cmp.Diff(map[string]string{"2738": "digit: 7 is too much", "9": "digit: 9 is too much"}, b.reasons()); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}
