package strategies_test

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
	"github.com/arroyo-go/arroyo/strategies"
)

// sizesOf are how many members the batches have.
func sizesOf[T any](batches [][]arroyo.Message[T]) (sizes []int) {
	for _, b := range batches {
		sizes = append(sizes, len(b))
	}
	return sizes
}

func bytesOf(m arroyo.Message[*kgo.Record]) int { return len(m.Payload.Value) }

// I13: each batch has exactly one reason, and it is the right one.
func TestI13EachReasonIsCounted(t *testing.T) {
	for _, kind := range []string{"Batch", "ForEachBatch"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sizes list[int]
				see := func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
					sizes.add(len(rows))
					return nil
				}
				opts := []strategies.Option{strategies.MaxSize(10, bytesOf), strategies.Name("batch")}
				pipeline := strategies.ForEachBatch(3, time.Minute, see, opts...)
				if kind == "Batch" {
					pipeline = strategies.Batch(3, time.Minute, strategies.ForEach(
						func(ctx context.Context, b arroyo.BatchOf[*kgo.Record]) error { return see(ctx, b.Payload) }), opts...)
				}
				r := onLane(t, pipeline)
				a, b := r.assign(0), r.assign(1)
				expect := func(reason string, batches int, want ...int) {
					t.Helper()
					if diff := cmp.Diff(want, sizes.all()); diff != "" {
						t.Errorf("after %q: sizes of batches (-want +got):\n%s", reason, diff)
					}
					counts := r.Counts("batch")
					if got := counts["flushed "+reason]; got != int64(batches) {
						t.Errorf("%d batches were flushed %s, want %d", got, reason, batches)
					}
					sum := int64(0)
					for _, n := range counts {
						sum += n
					}
					if sum != int64(len(want)) {
						t.Errorf("%d reasons for %d batches: %v", sum, len(want), counts)
					}
				}
				r.feed(a, "x", "x", "x")
				expect("by count", 1, 3)
				r.feed(a, "12345", "12345")
				expect("by size", 1, 3, 2)
				r.feed(b, "12345", "123456") // the second does not fit
				expect("by size", 2, 3, 2, 1)
				wait(time.Minute)
				expect("by time", 1, 3, 2, 1, 1)
				r.feed(b, "x")
				r.FlushAtBound()
				synctest.Wait()
				expect("at the bound", 1, 3, 2, 1, 1, 1)
				r.feed(a, "x")
				r.drain(a)
				expect("by a drain", 1, 3, 2, 1, 1, 1, 1)
				r.feed(b, "x", "x")
				r.finish()
				expect("by a drain", 2, 3, 2, 1, 1, 1, 1, 2)
			})
		})
	}
}

// I13, in a run: a batch that is larger than what may be unsettled goes out at
// the bound.
func TestI13AtTheBoundOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes list[int]
		b := newBench(t, 2, strategies.ForEachBatch(1000, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			sizes.add(len(rows))
			return nil
		}, strategies.Name("insert")), arroyo.MaxInFlight(100))
		b.broker.Produce("events", numbered(300)...)
		b.settle(200)
		counts := b.count("insert", "flushed at the bound")
		if n := len(sizes.all()); n == 0 || counts != int64(n) {
			t.Errorf("%d batches, %d of them because of the bound", n, counts)
		}
		if status := b.processor.Status(); status.BoundFlushes == 0 {
			t.Error("the status does not say that the bound was met")
		}
		b.stopsWithin(time.Second)
		b.settle(300)
	})
}

// A flush that is about other partitions leaves the batch as it is.
func TestBatchFlushOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]arroyo.Message[*kgo.Record]]{}
		r := onLane(t, strategies.Batch(100, time.Hour, end))
		a, b, c := r.assign(0), r.assign(1), r.assign(2)
		r.feed(a, "x", "x")
		r.feed(b, "x")
		r.drain(c)
		if n := len(end.payloads()); n != 0 || len(end.flushes.all()) != 1 {
			t.Errorf("%d batches and %d flushes came out, want 0 and 1", n, len(end.flushes.all()))
		}
		r.drain(b) // the batch has a member of it
		if diff := cmp.Diff([]int{3}, sizesOf(end.payloads())); diff != "" {
			t.Errorf("sizes of batches (-want +got):\n%s", diff)
		}
		end.ackAll()
		for _, e := range []arroyo.Epoch{a, b} {
			if n := r.Unsettled(e); n != 0 {
				t.Errorf("%d messages of %v are not settled: a batch spans partitions, and all of them go on", n, e)
			}
		}
		r.finish()
	})
}

// Members keep their identity: one of them is rejected alone.
func TestBatchMembersAreRejectedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := onLane(t, strategies.Batch(4, time.Hour, strategies.ForEach(func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) error {
			b.Payload[2].Reject(errors.New("bad"))
			return nil
		})))
		a, b := r.assign(0), r.assign(1)
		r.feed(a, "x", "x")
		r.feed(b, "x", "x")
		verdicts := r.verdicts()
		slices.Sort(verdicts)
		if diff := cmp.Diff([]string{"0/0 acked", "0/1 acked", "1/0 rejected", "1/1 acked"}, verdicts); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// Members of an epoch that is over are taken out before anybody sees them.
func TestBatchWithoutFencedMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]arroyo.Message[*kgo.Record]]{}
		r := onLane(t, strategies.Batch(100, time.Minute, end))
		a, b := r.assign(0), r.assign(1)
		r.feed(a, "a", "a")
		r.feed(b, "b")
		r.feed(a, "a")
		r.Fence(a)
		wait(time.Minute)
		got := end.payloads()
		if len(got) != 1 || len(got[0]) != 1 || got[0][0].Epoch() != b {
			t.Errorf("got %v, want one batch with the message of b", sizesOf(got))
		}
		r.feed(b, "b")
		r.Fence(b)
		wait(time.Minute) // nothing is left of this one
		if n := len(end.payloads()); n != 1 {
			t.Errorf("%d batches, want 1: all members of the second were fenced", n)
		}
		r.finish()
	})
}

// A batch waits from its first message on, not from when the one before went
// out, and not from when the step was made.
func TestBatchWaitsSinceItsFirstMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]arroyo.Message[*kgo.Record]]{}
		r := onLane(t, strategies.Batch(10, 5*time.Second, end))
		e := r.assign(0)
		wait(time.Minute)
		r.feed(e, "x")
		wait(3 * time.Second)
		r.feed(e, "x")
		wait(1999 * time.Millisecond)
		if n := len(end.payloads()); n != 0 {
			t.Fatalf("a batch went out after less than its wait: %v", sizesOf(end.payloads()))
		}
		wait(time.Millisecond)
		if diff := cmp.Diff([]int{2}, sizesOf(end.payloads())); diff != "" {
			t.Errorf("sizes of batches (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// What did not fit into a batch that was slow to be processed does not go out
// at once as a small one.
func TestBatchBehindASlowOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes list[int]
		r := onLane(t, strategies.ForEachBatch(10, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			sizes.add(len(rows))
			time.Sleep(time.Minute)
			return nil
		}))
		e := r.assign(0)
		for range 8 {
			r.feed(e, numbered(15)...)
			wait(2 * time.Minute)
		}
		for _, n := range sizes.all() {
			if n < 5 {
				t.Fatalf("sizes of batches: %v", sizes.all())
			}
		}
		r.finish()
	})
}

func TestBatchMaxSize(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		want   []string // the batches, their values put together with spaces
	}{
		{"exactly full", []string{"12345", "67890", "x"}, []string{"12345 67890", "x"}},
		{"one too many", []string{"12345", "123456", "x"}, []string{"12345", "123456 x"}},
		{"too large by itself", []string{"x", "0123456789012", "y"}, []string{"x", "0123456789012", "y"}},
		{"too large at first", []string{"0123456789012", "y", "z"}, []string{"0123456789012", "y z"}},
		{"by count", []string{"a", "b", "c", "d", "e"}, []string{"a b c d", "e"}},
		{"empty ones", []string{"", "", "0123456789", ""}, []string{"  0123456789", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var batches list[string]
				r := onLane(t, strategies.ForEachBatch(4, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
					var values []string
					for _, row := range rows {
						values = append(values, value(row))
					}
					batches.add(strings.Join(values, " "))
					return nil
				}, strategies.MaxSize(10, bytesOf)))
				r.feed(r.assign(0), tt.values...)
				r.finish()
				if diff := cmp.Diff(tt.want, batches.all()); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A panic of the size function names the step and the message.
func TestBatchSizePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := onLane(t, strategies.ForEachBatch(4, time.Hour, func(context.Context, []arroyo.Message[*kgo.Record]) error { return nil },
			strategies.MaxSize(10, func(m arroyo.Message[*kgo.Record]) int {
				if value(m) == "bad" {
					panic("no size")
				}
				return 1
			}), strategies.Name("insert")))
		r.feed(r.assign(0), "x", "bad")
		var step *arroyo.StepError
		var panicked *arroyo.PanicError
		if err := r.Finish(); !errors.As(err, &step) || !errors.As(err, &panicked) || step.Step != "insert" || step.Offset != 1 {
			t.Errorf("the run ended with %v", err)
		}
	})
}

func TestMaxSizePanics(t *testing.T) {
	rows := func(context.Context, []arroyo.Message[*kgo.Record]) error { return nil }
	ofText := strategies.MaxSize(10, func(arroyo.Message[string]) int { return 1 })
	expectPanics(t, map[string]func(){
		"MaxSize: a limit of 0 is not positive": func() { strategies.MaxSize(0, bytesOf) },
		"MaxSize: the function is nil":          func() { strategies.MaxSize[int](1, nil) },
		"ForEachBatch: the function of MaxSize is a func(arroyo.Message[string]) int": func() {
			strategies.ForEachBatch(1, time.Second, rows, ofText)
		},
		"Filter: it takes no MaxSize": func() {
			strategies.Filter(func(arroyo.Message[string]) bool { return true }, strategies.Noop[string](), ofText)
		},
	})
}

// expectPanics calls functions that have to panic with these texts.
func expectPanics(t *testing.T, calls map[string]func()) {
	t.Helper()
	for want, call := range calls {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) {
					t.Errorf("panicked with %q, want %q in it", got, want)
				}
			}()
			call()
		})
	}
}

func TestUnbatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[*kgo.Record]{}
		var a arroyo.Epoch
		var r *laneRig
		r = onLane(t, strategies.Batch(6, time.Hour, strategies.RunTask(
			func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) ([]arroyo.Message[*kgo.Record], error) {
				b.Payload[1].Reject(errors.New("bad"))
				b.Payload[4].Ack()
				r.Fence(a)
				return b.Payload, nil
			}, strategies.Unbatch(end))))
		a = r.assign(0)
		b := r.assign(1)
		r.feed(b, "0", "1", "2")
		r.feed(a, "gone")
		r.feed(b, "3", "4")
		var got []string
		for _, m := range end.got.all() {
			got = append(got, string(m.Payload.Value))
			if m.Record() != m.Payload {
				t.Error("a member is not what it was")
			}
		}
		if diff := cmp.Diff([]string{"0", "2", "4"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		end.got.all()[1].Reject(errors.New("bad")) // alone
		end.ackAll()
		if diff := cmp.Diff([]string{"1/1 rejected", "1/3 acked", "1/2 rejected", "1/0 acked", "1/4 acked"}, r.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// What a step in between makes of the members goes on as messages of theirs.
func TestUnbatchOfOtherMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[string]{}
		r := onLane(t, strategies.Batch(2, time.Hour, strategies.RunTask(
			func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) (out []arroyo.Message[string], err error) {
				for _, m := range b.Payload {
					out = append(out, arroyo.With(m, "<"+value(m)+">"))
				}
				return out, nil
			}, strategies.Unbatch(end))))
		e := r.assign(0)
		r.feed(e, "a", "b")
		if diff := cmp.Diff([]string{"<a>", "<b>"}, end.payloads()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		end.ackAll()
		if n := r.Unsettled(e); n != 0 {
			t.Errorf("%d messages are not settled", n)
		}
		r.finish()
	})
}
