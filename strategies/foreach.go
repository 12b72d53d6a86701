package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// ForEach ends a pipeline: it calls f with each message and acks those that f
// is done with.
func ForEach[T any](f func(context.Context, arroyo.Message[T]) error, opts ...Option) arroyo.Strategy[T] {
	require("ForEach", "the function is nil", f != nil)
	return &forEach[T]{step: configure("ForEach", f, opts).step, f: f}
}

type forEach[T any] struct {
	step *arroyo.Step
	f    func(context.Context, arroyo.Message[T]) error
}

func (s *forEach[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) (err error) {
	s.step.Enter(ctx, len(msgs))
	i := 0
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[i], v)
		}
	}()
	for ; i < len(msgs); i++ {
		m := &msgs[i]
		if m.Fenced() {
			continue
		}
		if err := s.f(ctx, *m); err != nil {
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
