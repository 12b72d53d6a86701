package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// ForEach ends a pipeline: it calls f with each message, in their order and on
// one goroutine, and acks those that f is done with: at once, or up to 16
// together while many messages a millisecond go through.
//
// f says with its error what becomes of the message: arroyo.Invalid rejects
// it, arroyo.Drop acks it, and any other error, or a panic, ends the run.
func ForEach[T any](f func(context.Context, arroyo.Message[T]) error, opts ...Option) arroyo.Strategy[T] {
	require("ForEach", "the function is nil", f != nil)
	return &forEach[T]{config: configure("ForEach", f, opts), f: f, task: asTask(f)}
}

type forEach[T any] struct {
	*config
	f    func(context.Context, arroyo.Message[T]) error
	task func(context.Context, arroyo.Message[T]) (struct{}, error)
}

// asTask makes a function without a result fit where one with a result goes.
func asTask[T any](f func(context.Context, T) error) func(context.Context, T) (struct{}, error) {
	return func(ctx context.Context, x T) (struct{}, error) { return struct{}{}, f(ctx, x) }
}

const (
	ackTogether = 16 // messages
	fromMany    = 64 // messages of a Submit on
)

// An ack costs more than all else here. So where f is fast, which is where the
// lane submits many messages at once, a few are acked together: behind one that
// then takes long, up to 15 wait for their acks.
func (s *forEach[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) (err error) {
	s.step.Enter(ctx, len(msgs))
	var (
		run []arroyo.Message[T]
		at  int // in the run
	)
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, run[at], v)
		}
		if err != nil {
			arroyo.AckAll(run[:at])
		}
	}()
	together := 1
	if len(msgs) >= fromMany {
		together = ackTogether
	}
	for from := 0; from < len(msgs); from += together {
		run = msgs[from:min(from+together, len(msgs))]
		if err := s.each(ctx, run, &at); err != nil {
			return err
		}
		arroyo.AckAll(run)
	}
	return nil
}

// each is apart from what recovers, so that what it counts stays in registers.
func (s *forEach[T]) each(ctx context.Context, msgs []arroyo.Message[T], at *int) (err error) {
	f, simple := s.f, s.simple()
	for i := range msgs {
		*at = i
		m := &msgs[i]
		if m.Fenced() {
			continue
		}
		if simple {
			err = f(ctx, *m)
		} else {
			_, err = try(ctx, &s.attempts, *m, s.task)
		}
		if err != nil {
			if err := settleFailed(s.step, *m, err); err != nil {
				return err
			}
		}
	}
	return nil
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
