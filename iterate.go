package arroyo

import (
	"context"
	"iter"
	"time"
)

// Events yields the consumer's events and owns its life. When ctx ends it
// drains, within 25 s or what a rebalance allows if that is less, and yields up
// to Closed; then the consumer is closed. Leaving the loop early closes it at
// once, without a drain. As with Poll, the next turn of the loop releases the
// event before it, unless it is held.
func (c *Consumer) Events(ctx context.Context) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Drain(min(25*time.Second, c.budget)) })()
		for {
			ev, err := c.Poll(context.Background())
			if err != nil || !yield(ev) {
				return
			}
		}
	}
}
