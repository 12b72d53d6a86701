package strategies

import (
	"context"
	"slices"

	"github.com/arroyo-go/arroyo"
)

// Unbatch takes batches apart and hands their members on, one by one and in
// their order, with the identity that they had before. Those that have their
// verdict already, because a step before rejected one of them say, are not
// handed on; nor are those whose partition was lost.
//
// A step in between that hands on a batch of other messages makes them with
// arroyo.With; a member that it leaves out it has to settle.
func Unbatch[T any](next arroyo.Strategy[T], opts ...Option) arroyo.Strategy[[]arroyo.Message[T]] {
	require("Unbatch", "the next step is nil", next != nil)
	return &unbatch[T]{step: configure("Unbatch", nil, opts).step, next: next}
}

type unbatch[T any] struct {
	step *arroyo.Step
	next arroyo.Strategy[T]
}

func (s *unbatch[T]) Submit(ctx context.Context, batches []arroyo.BatchOf[T]) error {
	s.step.Enter(ctx, len(batches))
	for i := range batches {
		b := &batches[i]
		if b.Settled() {
			continue
		}
		// The slice is ours: a batch belongs to who receives it.
		members := slices.DeleteFunc(arroyo.Unfenced(b.Payload), arroyo.Message[T].Settled)
		if len(members) == 0 {
			continue
		}
		if err := s.next.Submit(ctx, members); err != nil {
			return err
		}
	}
	return nil
}

func (s *unbatch[T]) Flush(ctx context.Context) error { return s.next.Flush(ctx) }

func (s *unbatch[T]) Close(ctx context.Context) error { return s.next.Close(ctx) }
