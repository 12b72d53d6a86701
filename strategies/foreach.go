package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// ForEach ends a pipeline: it calls f with each message, in their order and on
// one goroutine, and acks those that f is done with: at once, or up to 64
// together while many messages a millisecond go through.
//
// f says with its error what becomes of the message: arroyo.Invalid rejects
// it, arroyo.Drop acks it, and any other error, or a panic, ends the run.
func ForEach[T any](f func(context.Context, arroyo.Message[T]) error, opts ...Option) arroyo.Strategy[T] {
	require("ForEach", "the function is nil", f != nil)
	c := configure("ForEach", f, opts)
	if !c.simple() {
		task := attempted(&c.attempts, asTask(f))
		f = func(ctx context.Context, m arroyo.Message[T]) error {
			_, err := task(ctx, m)
			return err
		}
	}
	return &forEach[T]{step: c.step, f: f}
}

type forEach[T any] struct {
	step   *arroyo.Step
	f      func(context.Context, arroyo.Message[T]) error
	filter *filter[T] // whose messages it calls f with, too; or nil
}

// asTask makes a function without a result fit where one with a result goes.
func asTask[T any](f func(context.Context, T) error) func(context.Context, T) (struct{}, error) {
	return func(ctx context.Context, x T) (struct{}, error) { return struct{}{}, f(ctx, x) }
}

const (
	ackTogether = 64 // messages
	fromMany    = 64 // messages of a Submit on
)

// An ack costs more than all else here. So where f is fast, which is where the
// lane submits many messages at once, a few are acked together: behind one that
// then takes long, up to 63 wait for their acks.
func (s *forEach[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) (err error) {
	s.enter(ctx, len(msgs))
	total := len(msgs)
	var (
		run  []arroyo.Message[T]
		from int // in the run
		at   place
	)
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.stepAt(&at), run[min(from+at.i, len(run)-1)], v)
		}
		if err != nil {
			arroyo.AckAll(run[:min(from+at.i, len(run))])
		}
	}()
	together := 1
	if len(msgs) >= fromMany {
		together = ackTogether
	}
	for len(msgs) > 0 {
		run = msgs[:min(together, len(msgs))]
		msgs = msgs[len(run):]
		for from = 0; from < len(run); {
			did, err := s.calls(ctx, run[from:], &at)
			if err != nil {
				if err := settleFailed(s.step, run[from+did], err); err != nil {
					return err
				}
			}
			from += did + 1
		}
		arroyo.AckAll(run)
	}
	if s.filter != nil {
		s.step.Enter(ctx, total-at.dropped)
	}
	return nil
}

// place is how far a loop over messages is.
type place struct {
	i       int // the message
	kept    int // the last one that a filter let through
	dropped int // how many it did not
}

// calls calls f up to the first message for which it fails, and returns how many
// are before that.
func (s *forEach[T]) calls(ctx context.Context, msgs []arroyo.Message[T], at *place) (int, error) {
	if s.filter != nil {
		return callsOfKept(ctx, s.filter.keep, s.f, msgs, at)
	}
	return calls(ctx, s.f, msgs, at)
}

// calls is apart from the rest for the same reason as results.
func calls[T any](ctx context.Context, f func(context.Context, arroyo.Message[T]) error, msgs []arroyo.Message[T], at *place) (int, error) {
	for i := range msgs {
		at.i = i
		m := msgs[i]
		if m.Fenced() {
			continue
		}
		if err := f(ctx, m); err != nil {
			return i, err
		}
	}
	return len(msgs), nil
}

func (s *forEach[T]) Flush(context.Context) error { return nil }

func (s *forEach[T]) Close(context.Context) error { return nil }

// Noop ends a pipeline: it acks everything.
func Noop[T any]() arroyo.Strategy[T] { return noop[T]{} }

type noop[T any] struct{}

func (noop[T]) Submit(_ context.Context, msgs []arroyo.Message[T]) error {
	arroyo.AckAll(msgs)
	return nil
}

func (noop[T]) Flush(context.Context) error { return nil }

func (noop[T]) Close(context.Context) error { return nil }
