package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a broker and a processor that runs a pipeline on its topic.
type rig struct {
	broker *memkafka.Broker
	stop   func() error
}

func newRig(t *testing.T, partitions int, pipeline arroyo.Strategy[*kgo.Record]) *rig {
	t.Helper()
	broker := memkafka.New(t, memkafka.Topic("events", partitions))
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		t.Fatal(err)
	}
	processor, err := arroyo.NewProcessor(consumer, pipeline, arroyo.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{broker, memkafka.Start(t, processor.Run)}
	broker.WaitStable("g", 1)
	return r
}

// settle waits until n records are committed.
func (r *rig) settle(n int64) { r.broker.WaitCommitted("g", "events", n) }

// list collects what a step was given.
type list[T any] struct {
	mu    sync.Mutex
	items []T
}

func (l *list[T]) add(x T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, x)
}

func (l *list[T]) all() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}

// into is a pipeline's end that collects payloads.
func into[T any](l *list[T]) arroyo.Strategy[T] {
	return strategies.ForEach(func(_ context.Context, m arroyo.Message[T]) error {
		l.add(m.Payload)
		return nil
	})
}

func text(_ context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
	return string(m.Payload.Value), nil
}

func numbered(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	return values
}

func TestRunTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got list[string]
		r := newRig(t, 1, strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
			v := string(m.Payload.Value)
			if strings.HasSuffix(v, "3") {
				return "", fmt.Errorf("threes: %w", arroyo.Drop)
			}
			return "<" + v + ">", nil
		}, into(&got)))
		r.broker.Produce("events", numbered(200)...)
		r.settle(200) // the dropped ones are done with as well
		var want []string
		for _, v := range numbered(200) {
			if !strings.HasSuffix(v, "3") {
				want = append(want, "<"+v+">")
			}
		}
		if diff := cmp.Diff(want, got.all()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
	})
}

func TestFilter(t *testing.T) {
	for name, keep := range map[string]func(string) bool{
		"all":   func(string) bool { return true },
		"none":  func(string) bool { return false },
		"some":  func(v string) bool { return strings.HasPrefix(v, "1") },
		"first": func(v string) bool { return v == "0" },
		"last":  func(v string) bool { return v == "199" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got list[string]
				r := newRig(t, 1, strategies.RunTask(text, strategies.Filter(func(m arroyo.Message[string]) bool {
					return keep(m.Payload)
				}, into(&got))))
				r.broker.Produce("events", numbered(200)...)
				r.settle(200)
				var want []string
				for _, v := range numbered(200) {
					if keep(v) {
						want = append(want, v)
					}
				}
				if diff := cmp.Diff(want, got.all()); diff != "" {
					t.Errorf("kept (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// I13: each batch has one reason: its size, its time, a flush.
func TestI13BatchReasons(t *testing.T) {
	type batch struct {
		n  int
		at time.Duration
	}
	for _, kind := range []string{"Batch", "ForEachBatch"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var got list[batch]
				see := func(n int) { got.add(batch{n, time.Since(began).Truncate(time.Second)}) }
				var pipeline arroyo.Strategy[*kgo.Record]
				if kind == "Batch" {
					pipeline = strategies.Batch(10, 5*time.Second, strategies.ForEach(
						func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) error {
							see(len(b.Payload))
							return nil
						}))
				} else {
					pipeline = strategies.ForEachBatch(10, 5*time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
						see(len(rows))
						return nil
					})
				}
				r := newRig(t, 3, pipeline)
				r.broker.Produce("events", numbered(25)...) // 10, 10 by size; 5 by time
				time.Sleep(7 * time.Second)
				r.broker.Produce("events", numbered(4)...) // by time, from this first one on
				time.Sleep(10 * time.Second)
				r.broker.Produce("events", numbered(10)...) // by size, at once
				time.Sleep(10 * time.Second)                // nothing more: the timer was stopped
				r.broker.Produce("events", numbered(3)...)  // by the flush of the shutdown
				time.Sleep(time.Second)
				if err := r.stop(); err != nil {
					t.Fatal(err)
				}
				want := []batch{{10, 0}, {10, 0}, {5, 5 * time.Second}, {4, 12 * time.Second}, {10, 17 * time.Second}, {3, 28 * time.Second}}
				if diff := cmp.Diff(want, got.all(), cmp.AllowUnexported(batch{})); diff != "" {
					t.Errorf("batches (-want +got):\n%s", diff)
				}
				r.settle(42)
			})
		})
	}
}

// A batch belongs to the function: whatever that does to the slice, every
// member is settled.
func TestBatchBelongsToTheFunction(t *testing.T) {
	for _, kind := range []string{"Batch", "ForEachBatch"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var kept list[[]arroyo.Message[*kgo.Record]]
				spoil := func(rows []arroyo.Message[*kgo.Record]) {
					kept.add(rows)
					slices.Reverse(rows)
					clear(rows[:5])
				}
				var pipeline arroyo.Strategy[*kgo.Record]
				if kind == "Batch" {
					pipeline = strategies.Batch(10, time.Second, strategies.ForEach(func(_ context.Context, b arroyo.BatchOf[*kgo.Record]) error {
						spoil(b.Payload)
						return nil
					}))
				} else {
					pipeline = strategies.ForEachBatch(10, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
						spoil(rows)
						return nil
					})
				}
				r := newRig(t, 2, pipeline)
				r.broker.Produce("events", numbered(100)...)
				r.settle(100)
				for i, rows := range kept.all() {
					for j, row := range rows {
						if (row.Payload == nil) != (j < 5) {
							t.Fatalf("batch %d was used again", i)
						}
					}
				}
			})
		})
	}
}

func TestForEachBatchVerdicts(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name      string
		f         func(rows []arroyo.Message[*kgo.Record]) error
		committed int64
		want      error
	}{
		{"done", func([]arroyo.Message[*kgo.Record]) error { return nil }, 10, nil},
		{"drop", func([]arroyo.Message[*kgo.Record]) error { return arroyo.Drop }, 10, nil},
		{"one row rejected", func(rows []arroyo.Message[*kgo.Record]) error { rows[4].Reject(broken); return nil }, 4, broken},
		{"invalid", func(rows []arroyo.Message[*kgo.Record]) error { rows[0].Ack(); return arroyo.Invalid(broken) }, 1, broken},
		{"error after some acks", func(rows []arroyo.Message[*kgo.Record]) error {
			rows[0].Ack()
			rows[1].Ack()
			return broken
		}, 2, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 1, strategies.ForEachBatch(10, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
					return tt.f(rows)
				}))
				r.broker.Produce("events", numbered(10)...)
				time.Sleep(5 * time.Second)
				if err := r.stop(); !errors.Is(err, tt.want) {
					t.Errorf("Run: %v, want %v", err, tt.want)
				}
				if got := r.broker.Committed("g", "events")[0]; got != tt.committed {
					t.Errorf("committed %d, want %d", got, tt.committed)
				}
			})
		})
	}
}

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got list[order]
		r := newRig(t, 1, strategies.RunTask(strategies.JSON, into(&got)))
		r.broker.Produce("events", `{"id":"a","amount":3}`, `{"id":"b"}`)
		r.settle(2)
		if diff := cmp.Diff([]order{{"a", 3}, {"b", 0}}, got.all()); diff != "" {
			t.Errorf("decoded (-want +got):\n%s", diff)
		}
	})
	for name, value := range map[string][]byte{"garbage": []byte("{"), "null value": nil, "wrong type": []byte(`{"amount":"x"}`)} {
		t.Run(name, func(t *testing.T) {
			_, err := strategies.JSON[order](t.Context(), arroyo.Message[*kgo.Record]{Payload: &kgo.Record{Value: value}})
			var invalid *arroyo.InvalidError
			if !errors.As(err, &invalid) {
				t.Errorf("got %v, want an InvalidError", err)
			}
		})
	}
}

func TestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, pipeline := range map[string]arroyo.Strategy[*kgo.Record]{
			"step RunTask(strategies_test.fails) at events/0 offset 0: ": strategies.RunTask(fails, strategies.Noop[int]()),
			"step parse at events/0 offset 0: ":                          strategies.RunTask(fails, strategies.Noop[int](), strategies.Name("parse")),
		} {
			r := newRig(t, 1, pipeline)
			r.broker.Produce("events", "x")
			time.Sleep(time.Second)
			if err := r.stop(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Run: %v, want %q in it", err, want)
			}
		}
	})
}

func fails(context.Context, arroyo.Message[*kgo.Record]) (int, error) { return 0, errors.New("bad") }

func TestConstructorsPanic(t *testing.T) {
	noop := strategies.Noop[*kgo.Record]()
	batchEnd := strategies.Noop[[]arroyo.Message[*kgo.Record]]()
	each := func(context.Context, arroyo.Message[*kgo.Record]) error { return nil }
	for want, build := range map[string]func(){
		"RunTask: the task is nil":            func() { strategies.RunTask[*kgo.Record](nil, noop) },
		"RunTask: the next step is nil":       func() { strategies.RunTask[*kgo.Record, string](text, nil) },
		"Filter: the function is nil":         func() { strategies.Filter(nil, noop) },
		"Filter: the next step is nil":        func() { strategies.Filter[*kgo.Record](func(arroyo.Message[*kgo.Record]) bool { return true }, nil) },
		"ForEach: the function is nil":        func() { strategies.ForEach[int](nil) },
		"Batch: the next step is nil":         func() { strategies.Batch[int](1, time.Second, nil) },
		"Batch: a size of 0 is not positive":  func() { strategies.Batch(0, time.Second, batchEnd) },
		"Batch: a wait of 0s is not positive": func() { strategies.Batch(1, 0, batchEnd) },
		"ForEachBatch: the function is nil":   func() { strategies.ForEachBatch[int](1, time.Second, nil) },
		"ForEachBatch: a size of -1 is not positive": func() {
			strategies.ForEachBatch(-1, time.Second, func(context.Context, []arroyo.Message[int]) error { return nil })
		},
		"Name: the name is empty": func() { strategies.ForEach(each, strategies.Name("")) },
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

// A timer that fires while the lane is busy runs afterwards, on the lane, and
// not at all if the batch went out meanwhile.
func TestBatchTimerWhileBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes list[int]
		r := newRig(t, 1, strategies.ForEachBatch(4, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			sizes.add(len(rows))
			time.Sleep(3 * time.Second)
			return nil
		}))
		r.broker.Produce("events", numbered(10)...)
		r.settle(10)
		if diff := cmp.Diff([]int{4, 4, 2}, sizes.all()); diff != "" {
			t.Errorf("batches (-want +got):\n%s", diff)
		}
	})
}
