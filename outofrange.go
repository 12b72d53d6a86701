package arroyo

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ResetOutOfRange makes a partition whose offset is not in its log go on where
// the policy says, instead of failing. Its epoch ends, and the Lost and the
// Assigned have an *OffsetOutOfRangeError as their Reason, which says what was
// skipped. The default is to fail, because either records were lost or
// somebody has set a wrong offset.
func ResetOutOfRange(p StartPolicy) ConsumerOption {
	return func(c *consumerConfig) { c.reset = &p }
}

// outOfRange handles a partition whose position is not in its log. Consumer.mu
// is held.
func (c *Consumer) outOfRange(p Partition, err error) {
	s := c.open[p]
	if s == nil || s.fenced.Load() || s.paused&pausedForError != 0 {
		return
	}
	s.paused |= pausedForError // kgo would ask again at once and for ever
	c.failed = append(c.failed, p)
	offset := s.fetched.offset
	c.running.start(func() {
		ctx, cancel := context.WithTimeout(s.ctx, c.budget)
		defer cancel()
		e := &OffsetOutOfRangeError{Partition: p, Offset: offset, Start: -1, End: -1, Err: err}
		e.Start, e.End = c.bounds(ctx, p)
		if c.config.reset == nil {
			c.mu.Lock()
			c.report(p.String(), s.Epoch, e, true)
			c.mu.Unlock()
			return
		}
		var at map[Partition]position
		if c.trying(s.ctx, func() (err error) {
			at, err = c.config.reset.resolve(s.ctx, c, []Partition{p})
			return err
		}) != nil {
			return // the epoch is over
		}
		c.mu.Lock()
		held := c.open[p] == s && s.revoking == nil
		if held {
			c.moveLocked([]*epochState{s}, at, e)
		}
		c.mu.Unlock()
		if held {
			c.endEpochs([]*epochState{s}, ErrFenced)
		}
	})
}

// bounds returns where a partition's log starts and ends; -1: unknown.
func (c *Consumer) bounds(ctx context.Context, p Partition) (start, end int64) {
	start, end = -1, -1
	admin := kadm.NewClient(c.client)
	if listed, err := admin.ListStartOffsets(ctx, p.Topic); err == nil {
		if l, ok := listed.Lookup(p.Topic, p.Number); ok && l.Err == nil {
			start = l.Offset
		}
	}
	if listed, err := admin.ListEndOffsets(ctx, p.Topic); err == nil {
		if l, ok := listed.Lookup(p.Topic, p.Number); ok && l.Err == nil {
			end = l.Offset
		}
	}
	return start, end
}
