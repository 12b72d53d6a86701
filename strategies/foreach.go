package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// ForEach ends a pipeline: it calls f with each message, in their order and on
// one goroutine, and acks those that f is done with.
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

func (s *forEach[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) (err error) {
	s.step.Enter(ctx, len(msgs))
	at := 0
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[at], v)
		}
	}()
	return s.each(ctx, msgs, &at)
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
			continue
		}
		m.Ack()
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
