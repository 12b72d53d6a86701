package strategies

import (
	"context"
	"fmt"
	"time"

	"github.com/arroyo-go/arroyo"
)

// collector holds messages back until there is a batch.
type collector[T any] struct {
	step   *arroyo.Step
	limits limits[T]
	wait   time.Duration
	emit   func(context.Context, []arroyo.Message[T]) error

	members []arroyo.Message[T]
	size    int    // of the members, if that is a limit
	last    int    // how many the batch before had
	stop    func() // of the timer that runs since the first member
}

func newCollector[T any](kind string, c *config, size int, wait time.Duration, emit func(context.Context, []arroyo.Message[T]) error) *collector[T] {
	require(kind, fmt.Sprintf("a wait of %v is not positive", wait), wait > 0)
	return &collector[T]{step: c.step, limits: limitsOf[T](kind, size, c), wait: wait, emit: emit}
}

func (c *collector[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	lane := c.step.Enter(ctx, len(msgs))
	for len(msgs) > 0 {
		if len(c.members) == 0 {
			c.members = make([]arroyo.Message[T], 0, min(c.limits.count, max(len(msgs), c.last)))
		}
		n, why, err := c.fit(msgs)
		if err != nil {
			return err
		}
		c.members = append(c.members, msgs[:n]...)
		msgs = msgs[n:]
		if why != "" {
			// A batch mixes partitions, so it is not the submitted
			// epoch's context that it works under.
			if err := c.handOn(lane.Context(), why); err != nil {
				return err
			}
		}
	}
	if len(c.members) > 0 && c.stop == nil {
		c.stop = lane.After(c.wait, func(ctx context.Context) error { return c.handOn(ctx, byTime) })
	}
	return nil
}

// fit returns how many messages more fit into the batch, and why no more do.
func (c *collector[T]) fit(msgs []arroyo.Message[T]) (n int, why reason, err error) {
	room := c.limits.count - len(c.members)
	if c.limits.of != nil {
		return c.fitSize(msgs, room)
	}
	if len(msgs) < room {
		return len(msgs), "", nil
	}
	return room, byCount, nil
}

func (c *collector[T]) fitSize(msgs []arroyo.Message[T], room int) (n int, why reason, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(c.step, msgs[n], v)
		}
	}()
	for ; n < len(msgs); n++ {
		if n == room {
			return n, byCount, nil
		}
		m := &msgs[n]
		if m.Fenced() {
			continue // it is taken out later
		}
		size := c.limits.of(*m)
		if c.size > 0 && c.size+size > c.limits.size {
			return n, bySize, nil
		}
		if c.size += size; c.size >= c.limits.size {
			return n + 1, bySize, nil
		}
	}
	if n == room {
		why = byCount
	}
	return n, why, nil
}

// flush is for the step's Flush: it hands on what is there if any of it is of
// the epochs that the flush is about.
func (c *collector[T]) flush(ctx context.Context) error {
	if !anyOf(ctx, c.members) {
		return nil
	}
	return c.handOn(ctx, reasonOf(ctx))
}

// handOn emits what is there. Members of epochs that are over are taken out
// first: others may be working on them already.
func (c *collector[T]) handOn(ctx context.Context, why reason) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the lane is abandoned
	}
	members := arroyo.Unfenced(c.members)
	c.last = len(c.members)
	c.drop()
	if len(members) == 0 {
		return nil
	}
	c.step.Count(string(why), 1)
	return c.emit(ctx, members)
}

func (c *collector[T]) drop() {
	if c.stop != nil {
		c.stop()
	}
	c.members, c.size, c.stop = nil, 0, nil
}
