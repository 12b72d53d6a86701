package strategies

import (
	"context"
	"fmt"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Batch collects messages and hands them on as one message of many: when there
// are size of them, when wait has passed since the first, or when the pipeline
// is flushed, whichever comes first. A batch may span partitions.
//
// The members keep their identity: each can be rejected alone, and a verdict
// of the batch goes to those that have none yet. A batch's slice is never used
// again: it belongs to who receives it.
func Batch[T any](size int, wait time.Duration, next arroyo.Strategy[[]arroyo.Message[T]], opts ...Option) arroyo.Strategy[T] {
	require("Batch", "the next step is nil", next != nil)
	s := &batch[T]{next: next}
	s.collector = newCollector("Batch", configure("Batch", nil, opts).step, size, wait, s.handOn)
	return s
}

type batch[T any] struct {
	*collector[T]
	next arroyo.Strategy[[]arroyo.Message[T]]
}

func (s *batch[T]) handOn(ctx context.Context, members []arroyo.Message[T]) error {
	return s.next.Submit(ctx, []arroyo.BatchOf[T]{arroyo.Join(members, members)})
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

// collector holds messages back until there is a batch.
type collector[T any] struct {
	step *arroyo.Step
	size int
	wait time.Duration
	emit func(context.Context, []arroyo.Message[T]) error

	members []arroyo.Message[T]
	last    int    // how many the batch before had
	stop    func() // of the timer that runs since the first member
}

func newCollector[T any](kind string, step *arroyo.Step, size int, wait time.Duration, emit func(context.Context, []arroyo.Message[T]) error) *collector[T] {
	require(kind, fmt.Sprintf("a size of %d is not positive", size), size > 0)
	require(kind, fmt.Sprintf("a wait of %v is not positive", wait), wait > 0)
	return &collector[T]{step: step, size: size, wait: wait, emit: emit}
}

func (c *collector[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	lane := arroyo.LaneOf(ctx)
	began := time.Now()
	for len(msgs) > 0 {
		if len(c.members) == 0 {
			c.members = make([]arroyo.Message[T], 0, min(c.size, max(len(msgs), c.last)))
		}
		n := min(len(msgs), c.size-len(c.members))
		c.members = append(c.members, msgs[:n]...)
		msgs = msgs[n:]
		if len(c.members) == c.size {
			// A batch mixes partitions, so it is not the submitted
			// epoch's context that it works under.
			if err := c.flush(lane.Context()); err != nil {
				return err
			}
		}
	}
	if len(c.members) > 0 && c.stop == nil {
		c.stop = lane.After(c.wait-time.Since(began), c.flush)
	}
	return nil
}

// flush emits what is there. Members of epochs that are over are taken out
// first: others may be working on them already.
func (c *collector[T]) flush(ctx context.Context) error {
	members := arroyo.Unfenced(c.members)
	c.last = len(c.members)
	c.drop()
	if len(members) == 0 {
		return nil
	}
	return c.emit(ctx, members)
}

func (c *collector[T]) drop() {
	if c.stop != nil {
		c.stop()
	}
	c.members, c.stop = nil, nil
}
