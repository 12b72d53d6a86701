package strategytest

import (
	"context"
	"slices"
	"time"

	"github.com/arroyo-go/arroyo"
)

// broken is what is wrong with a strategy, the check that finds it, and what
// that says.
type broken struct {
	what  string
	build func(strategy) strategy
	check string
	says  string
}

var allBroken = []broken{
	{"loses a message", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if len(msgs) > 1 {
			msgs = msgs[1:]
		}
		return next.Submit(ctx, msgs)
	}), "delivery", "was neither settled nor handed on"},
	{"hands messages on twice", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if err := next.Submit(ctx, msgs); err != nil {
			return err
		}
		return next.Submit(ctx, msgs[len(msgs)-1:])
	}), "delivery", "is handed on twice"},
	{"hands on a message in two batches", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		return next.Submit(ctx, messages{arroyo.Join(0, msgs), arroyo.Join(1, msgs[:1])})
	}), "delivery", "is handed on twice"},
	{"hands on and acks", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if err := next.Submit(ctx, msgs); err != nil {
			return err
		}
		msgs[0].Ack()
		return nil
	}), "delivery", "was handed on and acked as well"},
	{"acks and hands on", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		msgs[0].Ack()
		return next.Submit(ctx, msgs)
	}), "delivery", "is handed on although it is settled"},
	{"hands on one of two children", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		for _, m := range msgs {
			if err := next.Submit(ctx, arroyo.Split(m, []int{1, 2})[:1]); err != nil {
				return err
			}
		}
		return nil
	}), "delivery", "messages are not settled"},
	{"hands on messages of its own", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if err := next.Submit(ctx, messages{{Payload: 1}}); err != nil {
			return err
		}
		return next.Submit(ctx, msgs)
	}), "delivery", "stands for no record"},
	{"returns messages outside of a drain", submitting(func(_ context.Context, msgs messages, _ strategy) error {
		for _, m := range msgs {
			m.Return()
		}
		return nil
	}), "delivery", "returned outside of a drain"},
	{"reverses a slice", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		msgs = slices.Clone(msgs)
		slices.Reverse(msgs)
		return next.Submit(ctx, msgs)
	}), "delivery", "was handed on after offset"},
	{"changes the slice", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		err := next.Submit(ctx, msgs)
		msgs[0].Payload++
		return err
	}), "delivery", "the slice of a Submit was changed"},
	{"keeps the slice", queue(func(q *queued) { q.copies = true }), "slow next step", "was the slice of a Submit kept"},
	{"changes the slice that it handed on", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		own := slices.Clone(msgs)
		return next.Submit(meddling{ctx, func() { clear(own) }}, own)
	}), "delivery", "was changed while it worked"},
	{"fails by itself", submitting(func(context.Context, messages, strategy) error { return errOwn }), "delivery", errOwn.Error()},

	{"does not flush itself", held(func(h *holding) {
		h.wait = time.Minute
		h.flushes = func(h *holding, ctx context.Context) error { return h.next.Flush(ctx) }
	}), "flush", "was still there when Flush was passed on"},
	{"does not pass Flush on", held(func(h *holding) {
		h.flushes = func(h *holding, ctx context.Context) error { return h.handOn(ctx, arroyo.FlushOf(ctx)) }
	}), "flush", "Flush was not passed on"},
	{"flushes the next step before the results", queue(func(q *queued) {
		q.sideEffect = func(q *queued) { // at its start
			next := q.next
			q.next = &submitter{arroyo.ForwardTo(next), func(ctx context.Context, msgs messages, next strategy) error {
				time.Sleep(time.Second)
				return next.Submit(ctx, msgs)
			}}
			q.flushes = func(q *queued, ctx context.Context) error { return next.Flush(ctx) }
		}
	}), "flush", "was still there when Flush was passed on"},
	{"loses the others at a Flush", held(func(h *holding) { h.losesOthers = true }), "flush", "was neither settled nor handed on"},
	{"waits for other epochs at a Flush", working(func(w *worker) { w.waitsForAll = true }), "flush of some", "Flush was not passed on"},

	{"does not wait at Close", queue(func(q *queued) {
		q.closes = func(*queued, context.Context) error { return nil }
	}), "slow next step", "Close returned before the next step was closed"},
	{"closes the next step twice", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error {
			if err := h.next.Close(ctx); err != nil {
				return err
			}
			return h.next.Close(ctx)
		}
	}), "delivery", "Close of the next step was called after its Close"},
	{"does not close the next step", held(func(h *holding) {
		h.closes = func(*holding, context.Context) error { return nil }
	}), "delivery", "the next step was closed 0 times"},
	{"does not flush at the end", held(func(h *holding) {
		h.flushes = func(h *holding, ctx context.Context) error { return h.handOn(ctx, arroyo.FlushOf(ctx)) }
	}), "delivery", "was not flushed behind everything else"},
	{"closes as if the work were done", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error { return h.next.Close(context.WithoutCancel(ctx)) }
	}), "abandoned", "closed as if everything were done"},
	{"hands on under a context that has ended", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error {
			if err := h.handOn(ctx, func(arroyo.Epoch) bool { return true }); err != nil {
				return err
			}
			return h.next.Close(ctx)
		}
	}), "abandoned", "the context had ended, and there was a Submit"},
	{"hands on at its end under a context of its own", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error {
			if err := h.handOn(context.WithoutCancel(ctx), func(arroyo.Epoch) bool { return true }); err != nil {
				return err
			}
			return h.next.Close(ctx)
		}
	}), "abandoned", "the context had ended, and there was a Submit"},
	{"acks what it abandons", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error {
			arroyo.AckAll(h.held)
			return h.next.Close(ctx)
		}
	}), "abandoned", "were acked when the context had ended"},
	{"does not honour its context", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if err := Work(context.Background(), msgs[0]); err != nil {
			return err
		}
		return next.Submit(ctx, msgs)
	}), "abandoned", "has not ended"},
	{"does not honour the epoch's context", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		if err := Work(ctx, msgs[0]); err != nil {
			time.Sleep(time.Hour)
		}
		return next.Submit(ctx, msgs)
	}), "fenced in a call", "Submit has not returned"},
	{"takes the end of an epoch for a failure", queue(func(q *queued) {
		q.sideEffect = func(q *queued) {
			next := q.next
			q.next = &submitter{arroyo.ForwardTo(next), func(ctx context.Context, msgs messages, next strategy) error {
				err := next.Submit(ctx, msgs)
				if err != nil {
					arroyo.LaneOf(ctx).Post(func(context.Context) error { return err })
				}
				return err
			}}
		}
	}), "fenced in a call", "the run ended with"},
	{"hands on what is fenced", held(func(h *holding) { h.keepsFenced = true }), "fenced", "of an epoch that was over was handed on"},
	{"keeps state by partition", deduplicating(), "fenced", "was taken for what it was before"},

	{"takes in everything", queue(func(q *queued) { q.size = 1 << 20 }), "busy next step", "more than the capacity"},
	{"calls the next step from two goroutines", queue(func(q *queued) {
		q.flushes = func(q *queued, ctx context.Context) error { return q.next.Flush(q.in(ctx)) }
	}), "slow next step", "was called while another call of the next step went on"},
	{"gives the next step its own lane", queue(func(q *queued) {
		q.lanes = func(_, _ *arroyo.Lane, ctx context.Context) context.Context { return ctx }
	}), "slow next step", "a function that was given to After was called while another call"},
	{"gives the next step no lane", submitting(func(_ context.Context, msgs messages, next strategy) error {
		return next.Submit(context.Background(), msgs)
	}), "delivery", "without a lane"},

	{"swallows the error of a Submit", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		_ = next.Submit(ctx, msgs)
		return nil
	}), "failing next step", "Submit of the next step failed, but the run ended with <nil>"},
	{"swallows the error of a timer", held(func(h *holding) { h.wait, h.swallowsErrs = time.Minute, true }),
		"failing next step", "Submit of the next step failed, but the run ended with <nil>"},
	{"swallows the error of a Flush", held(func(h *holding) {
		h.flushes = func(h *holding, ctx context.Context) error {
			if err := h.handOn(ctx, arroyo.FlushOf(ctx)); err != nil {
				return err
			}
			_ = h.next.Flush(ctx)
			return nil
		}
	}), "failing next step", "Flush of the next step failed, but the run ended with <nil>"},
	{"swallows the error of a Close", held(func(h *holding) {
		h.closes = func(h *holding, ctx context.Context) error {
			_ = h.next.Close(ctx)
			return nil
		}
	}), "failing next step", "Close of the next step failed, but the run ended with <nil>"},
	{"goes on after an error", held(func(h *holding) {
		h.flushes = func(h *holding, ctx context.Context) (err error) {
			for i := range h.held {
				if e := h.next.Submit(ctx, h.held[i:i+1]); err == nil {
					err = e
				}
			}
			return err
		}
	}), "failing next step", "after its Submit failed"},
	{"acks what the next step did not take", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		err := next.Submit(ctx, msgs)
		if err != nil {
			arroyo.AckAll(msgs)
		}
		return err
	}), "failing next step", "was handed on and acked as well"},
	{"recovers a panic", submitting(func(ctx context.Context, msgs messages, next strategy) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = errOwn
			}
		}()
		return next.Submit(ctx, msgs)
	}), "panicking next step", "Submit of the next step panicked, but the run ended with"},

	{"leaves a goroutine", submitting(func(ctx context.Context, msgs messages, next strategy) error {
		go time.Sleep(time.Hour)
		return next.Submit(ctx, msgs)
	}), "delivery", "a goroutine is left"},
	{"never returns from Submit", submitting(func(ctx context.Context, _ messages, _ strategy) error {
		time.Sleep(time.Hour)
		return ctx.Err()
	}), "delivery", "Submit does not return"},
}
