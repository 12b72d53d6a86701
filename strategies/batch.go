package strategies

import (
	"context"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Batch collects messages and hands them on as one message of many: when there
// are size of them, when a MaxSize is reached, when wait has passed since the
// first one, or when the pipeline is flushed, whichever comes first. It is
// flushed when a partition of one of the members is given up, at the end of the
// run, and when so much is unsettled that no more is read; Status counts the
// batches by their reasons. A batch may span partitions.
//
// The members keep their identity: each can be rejected alone, and a verdict on
// the batch goes to those that have none yet. Members whose partition was lost
// meanwhile are taken out. The batch's slice is not used again: it belongs to
// who receives it. See Unbatch for the way back.
//
// It panics unless size and wait are positive.
func Batch[T any](size int, wait time.Duration, next arroyo.Strategy[[]arroyo.Message[T]], opts ...Option) arroyo.Strategy[T] {
	require("Batch", "the next step is nil", next != nil)
	s := &batch[T]{next: next}
	s.collector = newCollector("Batch", configure("Batch", nil, opts), size, wait, s.handOn)
	return s
}

type batch[T any] struct {
	*collector[T]
	next arroyo.Strategy[[]arroyo.Message[T]]
	out  [1]arroyo.BatchOf[T]
}

func (s *batch[T]) handOn(ctx context.Context, members []arroyo.Message[T]) error {
	s.out[0] = arroyo.Join(members, members)
	err := s.next.Submit(ctx, s.out[:])
	clear(s.out[:])
	return err
}

func (s *batch[T]) Flush(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	return s.next.Flush(ctx)
}

func (s *batch[T]) Close(ctx context.Context) error {
	s.drop()
	return s.next.Close(ctx)
}
