package strategytest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/arroyo-go/arroyo"
)

// byKey is a strategy that hands on the messages of a slice sorted by a key.
func byKey(key func(i int) string) func(strategy) strategy {
	return submitting(func(ctx context.Context, msgs messages, next strategy) error {
		msgs = slices.Clone(msgs)
		slices.SortStableFunc(msgs, func(a, b arroyo.Message[int]) int {
			x, y := key(a.Payload), key(b.Payload)
			switch {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		return next.Submit(ctx, msgs)
	})
}

func mod5(i int) string { return fmt.Sprint(i % 5) }

// keeping is a strategy that keeps the last message of each epoch when it is
// flushed, other than for a drain.
func keeping(next strategy) strategy {
	return held(func(h *holding) {
		h.flushes = func(h *holding, ctx context.Context) error {
			of := arroyo.FlushOf(ctx)
			last := make(map[arroyo.Epoch]int64)
			for _, m := range h.held {
				last[m.Epoch()] = m.Record().Offset
			}
			if err := h.handOnIf(ctx, func(m arroyo.Message[int]) bool {
				return of(m.Epoch()) && (!arroyo.AtBound(ctx) || m.Record().Offset < last[m.Epoch()])
			}); err != nil {
				return err
			}
			return h.next.Flush(ctx)
		}
	})(next)
}

// ending is a strategy that ends a pipeline and acks what it is given, but for
// some.
func ending(acks func(i int) bool) func(strategy) strategy {
	return func(strategy) strategy {
		return &end{acks}
	}
}

type end struct{ acks func(i int) bool }

func (e *end) Submit(ctx context.Context, msgs messages) error {
	for _, m := range msgs {
		if err := Work(ctx, m); err != nil {
			return err
		}
		if e.acks(m.Payload) {
			m.Ack()
		}
	}
	return nil
}

func (e *end) Flush(context.Context) error { return nil }
func (e *end) Close(context.Context) error { return nil }

// An option takes one promise out of the contract and leaves the others.
func TestOptions(t *testing.T) {
	reverse := submitting(func(ctx context.Context, msgs messages, next strategy) error {
		msgs = slices.Clone(msgs)
		slices.Reverse(msgs)
		return next.Submit(ctx, msgs)
	})
	all := func(int) bool { return true }
	for _, tt := range []struct {
		name    string
		build   func(strategy) strategy
		check   string
		with    []Option
		says    string // with the options; "": nothing
		without string // without them
	}{
		{"Unordered", reverse, "delivery", []Option{Unordered()}, "", "was handed on after offset"},
		{"PerKey", byKey(mod5), "delivery", []Option{PerKey(mod5)}, "", "was handed on after offset"},
		{"PerKey, reversed", reverse, "delivery", []Option{PerKey(mod5)}, "of the same key", "was handed on after offset"},
		{"Folds", held(func(h *holding) { h.keepsFenced = true }), "fenced", []Option{Folds()}, "", "of an epoch that was over was handed on"},
		{"Keeps", keeping, "flush", []Option{Keeps(1)}, "", "was still there when Flush was passed on"},
		{"Keeps too many", held(func(h *holding) {
			h.flushes = func(h *holding, ctx context.Context) error {
				if !arroyo.AtBound(ctx) {
					if err := h.handOn(ctx, arroyo.FlushOf(ctx)); err != nil {
						return err
					}
				}
				return h.next.Flush(ctx)
			}
		}), "flush", []Option{Keeps(1)}, "was still there when Flush was passed on", "was still there when Flush was passed on"},
		{"Capacity", queue(func(q *queued) { q.size = 10 }), "busy next step", []Option{Capacity(10)}, "more than the capacity of 10", ""},
		{"Ends", ending(all), "delivery", []Option{Ends()}, "", "the next step was closed 0 times"},
		{"Ends, and forgets some", ending(func(i int) bool { return i != 7 }), "delivery", []Option{Ends()}, "was neither settled nor handed on", "the next step was closed 0 times"},
		{"Ends, and forgets some at a Flush", ending(func(i int) bool { return i != 7 }), "flush", []Option{Ends()}, "was left behind by a Flush", "Flush was not passed on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, tt.build, tt.check, tt.says, tt.with...)
			expect(t, tt.build, tt.check, tt.without)
		})
	}
}
