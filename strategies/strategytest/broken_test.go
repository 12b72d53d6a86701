package strategytest

import (
	"context"
	"errors"
	"time"

	"github.com/arroyo-go/arroyo"
)

// The strategies here break the contract, each in one way. They hand messages
// on as they are, but for what each says.

type (
	messages = []arroyo.Message[int]
	strategy = arroyo.Strategy[int]
	forward  = arroyo.Forward[int]
)

// submitter breaks it in Submit.
type submitter struct {
	forward
	submit func(ctx context.Context, msgs messages, next strategy) error
}

func (s *submitter) Submit(ctx context.Context, msgs messages) error {
	return s.submit(ctx, msgs, s.Next)
}

func submitting(submit func(ctx context.Context, msgs messages, next strategy) error) func(strategy) strategy {
	return func(next strategy) strategy { return &submitter{arroyo.ForwardTo(next), submit} }
}

// holding is a strategy that holds back everything until it is flushed, and
// does so well, but for what is replaced.
type holding struct {
	next strategy
	held messages

	flushes      func(h *holding, ctx context.Context) error
	closes       func(h *holding, ctx context.Context) error
	keepsFenced  bool
	losesOthers  bool
	swallowsErrs bool
	wait         time.Duration // 0: no timer
	timed        bool
}

func (h *holding) Submit(ctx context.Context, msgs messages) error {
	h.held = append(h.held, msgs...)
	if h.wait > 0 && !h.timed {
		h.timed = true
		arroyo.LaneOf(ctx).After(h.wait, func(ctx context.Context) error {
			h.timed = false
			err := h.handOn(ctx, func(arroyo.Epoch) bool { return true })
			if h.swallowsErrs {
				err = nil
			}
			return err
		})
	}
	return nil
}

func (h *holding) handOn(ctx context.Context, of func(arroyo.Epoch) bool) error {
	return h.handOnIf(ctx, func(m arroyo.Message[int]) bool { return of(m.Epoch()) })
}

func (h *holding) handOnIf(ctx context.Context, now func(arroyo.Message[int]) bool) error {
	var out, kept messages
	for _, m := range h.held {
		switch {
		case m.Fenced() && !h.keepsFenced:
		case now(m):
			out = append(out, m)
		case !h.losesOthers:
			kept = append(kept, m)
		}
	}
	h.held = kept
	if len(out) == 0 {
		return nil
	}
	return h.next.Submit(ctx, out)
}

func (h *holding) Flush(ctx context.Context) error {
	if h.flushes != nil {
		return h.flushes(h, ctx)
	}
	if err := h.handOn(ctx, arroyo.FlushOf(ctx)); err != nil {
		return err
	}
	return h.next.Flush(ctx)
}

func (h *holding) Close(ctx context.Context) error {
	if h.closes != nil {
		return h.closes(h, ctx)
	}
	return h.next.Close(ctx)
}

func held(change func(*holding)) func(strategy) strategy {
	return func(next strategy) strategy {
		h := &holding{next: next}
		change(h)
		return h
	}
}

// queued is a strategy with a queue and a goroutine, and well made, but for
// what is replaced.
type queued struct {
	next strategy
	jobs chan func() error
	lane *arroyo.Lane // of the steps behind it
	done chan struct{}

	copies     bool // not the slice
	size       int
	lanes      func(own, fork *arroyo.Lane, ctx context.Context) context.Context
	flushes    func(q *queued, ctx context.Context) error
	closes     func(q *queued, ctx context.Context) error
	sideEffect func(q *queued)
}

func (q *queued) start(ctx context.Context) {
	if q.jobs != nil {
		return
	}
	if q.size == 0 {
		q.size = 4
	}
	q.jobs = make(chan func() error, q.size)
	q.done = make(chan struct{})
	q.lane = arroyo.LaneOf(ctx).Fork()
	arroyo.LaneOf(ctx).Go(func(ctx context.Context) error {
		defer close(q.done)
		return q.lane.Serve(q.jobs)
	})
	if q.sideEffect != nil {
		q.sideEffect(q)
	}
}

func (q *queued) in(ctx context.Context) context.Context {
	if q.lanes != nil {
		return q.lanes(arroyo.LaneOf(ctx), q.lane, ctx)
	}
	return q.lane.In(ctx)
}

func (q *queued) put(ctx context.Context, job func() error) error {
	q.start(ctx)
	select {
	case q.jobs <- job:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *queued) Submit(ctx context.Context, msgs messages) error {
	q.start(ctx)
	own := msgs
	if !q.copies {
		own = append(messages(nil), msgs...)
	}
	below := q.in(ctx)
	return q.put(ctx, func() error {
		own := arroyo.Unfenced(own)
		if len(own) == 0 {
			return nil
		}
		err := q.next.Submit(below, own)
		if err != nil && below.Err() != nil && q.lane.Context().Err() == nil {
			return nil // the epoch is over
		}
		return err
	})
}

func (q *queued) Flush(ctx context.Context) error {
	q.start(ctx)
	if q.flushes != nil {
		return q.flushes(q, ctx)
	}
	below := q.in(ctx)
	return q.put(ctx, func() error { return q.next.Flush(below) })
}

func (q *queued) Close(ctx context.Context) error {
	q.start(ctx)
	close(q.jobs)
	if q.closes != nil {
		return q.closes(q, ctx)
	}
	<-q.done
	return q.next.Close(ctx)
}

func queue(change func(*queued)) func(strategy) strategy {
	return func(next strategy) strategy {
		q := &queued{next: next}
		change(q)
		return q
	}
}

// deduplicating drops what it has seen, by partition and offset.
func deduplicating() func(strategy) strategy {
	type id struct {
		arroyo.Partition
		offset int64
	}
	return func(next strategy) strategy {
		seen := make(map[id]bool)
		return &submitter{arroyo.ForwardTo(next), func(ctx context.Context, msgs messages, next strategy) error {
			var out messages
			for _, m := range msgs {
				at := id{m.Epoch().Partition, m.Record().Offset}
				if seen[at] {
					m.Ack()
					continue
				}
				seen[at] = true
				out = append(out, m)
			}
			if len(out) == 0 {
				return nil
			}
			return next.Submit(ctx, out)
		}}
	}
}

// meddling is a context that does something when it is asked for a value.
type meddling struct {
	context.Context
	meddle func()
}

func (m meddling) Value(key any) any {
	m.meddle()
	return m.Context.Value(key)
}

var errOwn = errors.New("the strategy's own error")
