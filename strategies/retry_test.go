package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

var errDown = errors.New("the database is down")

type records = arroyo.Message[*kgo.Record]

// retrying are the steps that call a function of one message, each as a
// pipeline around such a function.
var retrying = map[string]func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record]{
	"RunTask": func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTask(func(ctx context.Context, m records) (int, error) { return 1, f(ctx, m) }, strategies.Noop[int](), opts...)
	},
	"ForEach": func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
		return strategies.ForEach(f, opts...)
	},
	"ForEachBatch": func(f func(context.Context, records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
		return strategies.ForEachBatch(1, time.Hour, func(ctx context.Context, rows []records) error { return f(ctx, rows[0]) }, opts...)
	},
}

// forEachRetrying runs a test of every step, each in a bubble.
func forEachRetrying(t *testing.T, test func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record])) {
	for name, build := range retrying {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, build) })
		})
	}
}

func TestRetryUntilItWorks(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		var calls list[time.Time]
		b := newBench(t, 1, build(func(_ context.Context, m records) error {
			calls.add(time.Now())
			if len(calls.all()) < 9 {
				return errDown
			}
			return nil
		}, strategies.Retry(strategies.RetryPolicy{Min: time.Second, Max: 20 * time.Second}), strategies.Name("write")))
		b.put(0, "x")
		time.Sleep(5 * time.Minute)
		b.settle(1)
		at := calls.all()
		if len(at) != 9 {
			t.Fatalf("%d calls, want 9", len(at))
		}
		for i, least := range []time.Duration{1, 2, 4, 8, 10, 10, 10, 10} {
			least *= time.Second
			if got := at[i+1].Sub(at[i]); got < least || got > min(2*least, 20*time.Second) {
				t.Errorf("wait %d took %v, want %v to %v", i+1, got, least, min(2*least, 20*time.Second))
			}
		}
		if got := b.count("write", "retries"); got != 8 {
			t.Errorf("Status counts %d retries, want 8", got)
		}
	})
}

// Many consumers do not come back at the same moment.
func TestRetryWaitsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits list[time.Duration]
		last := time.Time{}
		b := newBench(t, 1, strategies.ForEach(func(_ context.Context, m records) error {
			if !last.IsZero() {
				waits.add(time.Since(last))
			}
			last = time.Now()
			return errDown
		}, strategies.Retry(strategies.RetryPolicy{Min: time.Second, Max: 2 * time.Second})))
		b.put(0, "x")
		time.Sleep(time.Minute)
		b.stopsWithin(time.Second)
		if all := waits.all(); slices.Max(all)-slices.Min(all) < 100*time.Millisecond {
			t.Errorf("the waits %v are all alike", all)
		}
	})
}

func TestRetryGivesUp(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		for _, tt := range []struct {
			name      string
			giveUp    func(error) error
			want      []error
			committed int64
		}{
			{"the error ends the run", nil, []error{errDown}, 1},
			{"a dead letter", arroyo.Invalid, []error{errDown, arroyo.ErrNoDeadLetter}, 1},
			{"dropped", func(error) error { return arroyo.Drop }, nil, 3},
		} {
			calls := make(map[string]int)
			b := newBench(t, 1, build(func(_ context.Context, m records) error {
				if calls[value(m)]++; value(m) == "bad" {
					return fmt.Errorf("call %d: %w", calls["bad"], errDown)
				}
				return nil
			}, strategies.Retry(strategies.RetryPolicy{Attempts: 3, GiveUp: tt.giveUp}), strategies.Name("write")))
			b.put(0, "good", "bad", "more")
			time.Sleep(time.Minute)
			err := b.stop()
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("%s: Run: %v, want %v in it", tt.name, err, want)
				}
			}
			if tt.want == nil && err != nil {
				t.Errorf("%s: Run: %v", tt.name, err)
			}
			if tt.want != nil && !(strings.Contains(err.Error(), "step write at events/0 offset 1: ") && strings.Contains(err.Error(), "call 3: ")) {
				t.Errorf("%s: Run: %v, want the place and the last error", tt.name, err)
			}
			if calls["bad"] != 3 {
				t.Errorf("%s: %d calls, want 3", tt.name, calls["bad"])
			}
			b.expectCommitted(0, tt.committed)
			b.broker.Close()
		}
	})
}

// What is a verdict is not tried again, nor what If does not want to.
func TestRetryIsNotForVerdicts(t *testing.T) {
	broken := errors.New("broken")
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		for name, fails := range map[string]func() error{
			"invalid":      func() error { return fmt.Errorf("wrapped: %w", arroyo.Invalid(broken)) },
			"drop":         func() error { return fmt.Errorf("wrapped: %w", arroyo.Drop) },
			"panic":        func() error { panic(broken) },
			"not worth it": func() error { return broken },
		} {
			var calls atomic.Int32
			b := newBench(t, 1, build(func(context.Context, records) error {
				calls.Add(1)
				return fails()
			}, strategies.Retry(strategies.RetryPolicy{If: func(err error) bool {
				if name != "not worth it" {
					t.Errorf("%s: If was asked about %v", name, err)
				}
				return false
			}})))
			b.put(0, "x")
			time.Sleep(time.Minute)
			err := b.stop()
			if drop := name == "drop"; errors.Is(err, broken) == drop || (err == nil) != drop {
				t.Errorf("%s: Run: %v", name, err)
			}
			if n := calls.Load(); n != 1 {
				t.Errorf("%s: %d calls, want 1", name, n)
			}
			b.broker.Close()
		}
	})
}

func TestTimeout(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		hangs := func(ctx context.Context, _ records) error {
			<-ctx.Done()
			return ctx.Err()
		}
		b := newBench(t, 1, build(hangs, strategies.Timeout(3*time.Second)))
		b.put(0, "x")
		time.Sleep(10 * time.Second)
		if err := b.stop(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not done within 3s") {
			t.Errorf("Run: %v, want that it was not done within 3s", err)
		}
		b.broker.Close()

		// With a Retry each attempt has its own time.
		var calls atomic.Int32
		b = newBench(t, 1, build(func(ctx context.Context, m records) error {
			if left, ok := ctx.Deadline(); !ok || time.Until(left) != 3*time.Second {
				t.Errorf("an attempt has until %v", left)
			}
			if calls.Add(1) < 4 {
				return hangs(ctx, m)
			}
			return nil
		}, strategies.Timeout(3*time.Second), strategies.Retry(strategies.RetryPolicy{Attempts: 4})))
		b.put(0, "x")
		b.settle(1)
		b.stopsWithin(time.Second)
	})
}

// A shutdown or a revocation does not wait for a dead database: what could not
// be done is returned, without another attempt, and the drain is clean.
func TestRetryAndShutdown(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		var dead atomic.Bool
		var calls, late atomic.Int32
		b := newBench(t, 2, build(func(context.Context, records) error {
			calls.Add(1)
			if !dead.Load() {
				return nil
			}
			late.Add(1)
			return errDown
		}, strategies.Retry(strategies.RetryPolicy{Attempts: 1000, GiveUp: arroyo.Invalid})))
		b.broker.Produce("events", numbered(20)...)
		b.settle(20)
		dead.Store(true)
		b.broker.Produce("events", numbered(2000)...)
		time.Sleep(10 * time.Minute)
		before := calls.Load()
		b.stopsWithin(time.Second)
		if n := calls.Load() - before; n != 0 {
			t.Errorf("%d attempts after the shutdown began, want none", n)
		}
		if late.Load() < 10 {
			t.Errorf("only %d attempts in ten minutes", late.Load())
		}
		b.expectCommitted(0, 10)
		b.expectCommitted(1, 10)
	})
}

// The attempt that is in progress when the shutdown begins is the last, and it
// counts if it works.
func TestRetryLastAttempt(t *testing.T) {
	for name, works := range map[string]bool{"works": true, "fails": false} {
		t.Run(name, func(t *testing.T) {
			forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
				var calls atomic.Int32
				b := newBench(t, 1, build(func(ctx context.Context, m records) error {
					calls.Add(1)
					if err := pass(ctx, 10*time.Second); err != nil {
						return err
					}
					if works {
						return nil
					}
					return errDown
				}, strategies.Retry(strategies.RetryPolicy{Attempts: 1})))
				b.put(0, "a")
				time.Sleep(5 * time.Second) // in the middle
				b.stopsWithin(6 * time.Second)
				if n := calls.Load(); n != 1 {
					t.Errorf("%d calls, want 1", n)
				}
				if works {
					b.expectCommitted(0, 1)
				} else {
					b.expectCommitted(0, 0)
				}
			})
		})
	}
}

// A partition that is taken away is let go, and the other one is tried on.
func TestRetryAndRevocation(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		var up atomic.Bool
		var done list[string]
		b := newBench(t, 2, build(func(_ context.Context, m records) error {
			if !up.Load() {
				return errDown
			}
			done.add(value(m))
			return nil
		}, strategies.Retry(strategies.RetryPolicy{Min: 30 * time.Second, Max: 30 * time.Second})))
		b.put(0, "0")
		b.put(1, "1")
		time.Sleep(100 * time.Second)
		rival := b.joins() // takes one of the two
		up.Store(true)
		time.Sleep(time.Minute)
		theirs := rival.Assigned()[0]
		if got, want := done.all(), fmt.Sprint(1-theirs); !slices.Equal(got, []string{want}) {
			t.Errorf("done: %v, want %s", got, want)
		}
		if got := rival.Consumed(); len(got) != 1 || got[0].Partition != theirs {
			t.Errorf("the rival read %d records, want the one of partition %d", len(got), theirs)
		}
		rival.Leave()
		time.Sleep(time.Minute)
		b.settle(2)
		b.stopsWithin(time.Second)
	})
}

// A message whose partition was lost is not tried again.
func TestRetryAndFence(t *testing.T) {
	forEachRetrying(t, func(t *testing.T, build func(func(context.Context, records) error, ...strategies.Option) arroyo.Strategy[*kgo.Record]) {
		var calls list[time.Time]
		b := newBench(t, 1, build(func(context.Context, records) error {
			calls.add(time.Now())
			return errDown
		}, strategies.Retry(strategies.RetryPolicy{Min: time.Second, Max: time.Second})))
		b.put(0, "a")
		time.Sleep(10 * time.Second)
		b.host.BlackHole()
		time.Sleep(5 * time.Minute)
		all := calls.all()
		if last := all[len(all)-1]; time.Since(last) < 3*time.Minute {
			t.Errorf("it was tried until %v ago, though the session ended more than 4 minutes ago", time.Since(last))
		}
		b.host.Heal()
	})
}

// Of a batch the function is called with the rows again that have no verdict.
func TestRetryOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls list[[]string]
		b := newBench(t, 2, strategies.ForEachBatch(10, time.Second, func(_ context.Context, rows []records) error {
			var got []string
			for _, row := range rows {
				got = append(got, value(row))
			}
			slices.Sort(got)
			calls.add(got)
			for _, row := range rows {
				if v := value(row); v == "1" || v == "4" && len(rows) < 10 {
					row.Ack()
				}
			}
			clear(rows) // it belongs to the function
			if len(calls.all()) < 4 {
				return errDown
			}
			return nil
		}, strategies.Retry(strategies.RetryPolicy{})))
		b.broker.Produce("events", numbered(10)...)
		b.settle(10)
		want := [][]string{
			numbered(10),
			{"0", "2", "3", "4", "5", "6", "7", "8", "9"},
			{"0", "2", "3", "5", "6", "7", "8", "9"},
			{"0", "2", "3", "5", "6", "7", "8", "9"},
		}
		if diff := cmp.Diff(want, calls.all()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

// The members of a batch that are being drained are returned, the others are
// tried on.
func TestRetryOfABatchAndRevocation(t *testing.T) {
	for name, build := range map[string]func(f func([]records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record]{
		"ForEachBatch": func(f func([]records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(4, time.Hour, func(_ context.Context, rows []records) error { return f(rows) }, opts...)
		},
		"Batch, ForEach": func(f func([]records) error, opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
			return strategies.Batch(4, time.Hour, strategies.ForEach(func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) error {
				return f(slices.DeleteFunc(slices.Clone(b.Payload), records.Settled))
			}, opts...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var up atomic.Bool
				var done list[string]
				b := newBench(t, 2, build(func(rows []records) error {
					if !up.Load() {
						return errDown
					}
					for _, row := range rows {
						done.add(value(row))
					}
					return nil
				}, strategies.Retry(strategies.RetryPolicy{Min: 30 * time.Second, Max: 30 * time.Second})))
				b.put(0, "0", "0")
				b.put(1, "1", "1")
				time.Sleep(10 * time.Minute)
				rival := b.joins() // takes one of the two
				up.Store(true)
				time.Sleep(time.Minute)
				ours := 1 - rival.Assigned()[0]
				if got, want := done.all(), fmt.Sprint(ours); !slices.Equal(got, []string{want, want}) {
					t.Errorf("done: %v, want the rows of partition %s", got, want)
				}
				if n := len(rival.Consumed()); n != 2 {
					t.Errorf("the rival read %d records, want the two of its partition", n)
				}
				b.expectCommitted(ours, 2)
				b.stopsWithin(time.Second)
			})
		})
	}
}

// A function that settles all its rows and then fails has no rows to be called
// with again: its error counts.
func TestRetryOfABatchThatIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, strategies.ForEachBatch(2, time.Second, func(_ context.Context, rows []records) error {
			arroyo.AckAll(rows)
			return errDown
		}, strategies.Retry(strategies.RetryPolicy{})))
		b.put(0, "a", "b")
		time.Sleep(time.Minute)
		if err := b.stop(); !errors.Is(err, errDown) {
			t.Errorf("Run: %v, want %v", err, errDown)
		}
		b.expectCommitted(0, 2)
	})
}

func TestRetryOptionsPanic(t *testing.T) {
	all := func(records) bool { return true }
	for want, build := range map[string]func(){
		"Retry: -1 attempts are less than none":    func() { strategies.Retry(strategies.RetryPolicy{Attempts: -1}) },
		"Retry: a Min of -1ns is negative":         func() { strategies.Retry(strategies.RetryPolicy{Min: -1}) },
		"Retry: a Max of -1ns is negative":         func() { strategies.Retry(strategies.RetryPolicy{Max: -1}) },
		"Retry: a Min of 2s is more than a Max":    func() { strategies.Retry(strategies.RetryPolicy{Min: 2 * time.Second, Max: time.Second}) },
		"Timeout: 0s is not positive":              func() { strategies.Timeout(0) },
		"Filter: it takes neither Retry nor Timeo": func() { strategies.Filter(all, strategies.Noop[*kgo.Record](), strategies.Timeout(1)) },
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
