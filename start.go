package arroyo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	minStartPause = 100 * time.Millisecond
	maxStartPause = 5 * time.Second
)

// adjustOffsets is kgo's hook between the fetch of the group's offsets and the
// first fetch of records. It has to give kgo a position for every partition
// whose epoch is being opened: kgo never fetches one without.
func (c *Consumer) adjustOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if c.probed(ctx) {
		return offsets, ctx.Err()
	}
	var (
		begun   []*epochState           // all that get their position here
		missing []Partition             // the group has committed nothing
		without []*epochState           // kgo could not get an offset for it
		chosen  = map[Partition]int64{} // by StartAt
	)
	c.mu.Lock()
	for _, s := range c.open {
		if s.started {
			continue
		}
		s.started = true
		begun = append(begun, s)
		offset, ok := offsets[s.Topic][s.Number]
		switch {
		case s.startAt >= 0:
			chosen[s.Partition] = s.startAt
		case !ok:
			without = append(without, s)
		case offset.EpochOffset().Offset < 0:
			missing = append(missing, s.Partition)
		default:
			s.fetched = position{offset.EpochOffset().Offset, offset.EpochOffset().Epoch}
		}
	}
	c.mu.Unlock()

	tell := func(p Partition, at int64) {
		if offsets[p.Topic] == nil {
			offsets[p.Topic] = make(map[int32]kgo.Offset)
		}
		offsets[p.Topic][p.Number] = kgo.NewOffset().At(at)
	}
	set := func(p Partition, at int64) {
		tell(p, at)
		c.mu.Lock()
		if s := c.open[p]; s != nil {
			s.fetched = position{at, -1}
		}
		c.mu.Unlock()
	}
	for p, at := range chosen {
		set(p, at)
	}
	if len(missing) > 0 {
		starts, err := c.resolveStarts(ctx, missing)
		if err != nil {
			// kgo takes none of the positions; its next session asks
			// for all of them again.
			c.mu.Lock()
			for _, s := range begun {
				s.started = false
			}
			c.mu.Unlock()
			return nil, err
		}
		for p, at := range starts {
			set(p, at.offset)
		}
	}
	if len(without) > 0 {
		// A place to stand, but nothing to be fetched from there.
		c.setPaused(without, pausedForPosition, true)
		for _, s := range without {
			tell(s.Partition, 0)
		}
		c.running.start(func() { c.repair(without) })
	}
	if c.config.endOfPartition {
		c.emptyAtStart(ctx, offsets)
	}
	return offsets, nil
}

// resolveStarts finds where partitions begin of which the group has committed
// nothing. What the start policy means becomes a number, and is committed at
// once: whoever comes next starts at the same place, and not at what the policy
// means by then. It tries until ctx ends.
func (c *Consumer) resolveStarts(ctx context.Context, missing []Partition) (map[Partition]position, error) {
	var starts map[Partition]position
	err := c.trying(ctx, func() (err error) {
		starts, err = c.config.start.resolve(ctx, c, missing)
		return err
	})
	if err != nil {
		return nil, err
	}
	commits := make(map[*epochState]position, len(starts))
	c.mu.Lock()
	for p, at := range starts {
		if s := c.open[p]; s != nil {
			commits[s] = at
		}
	}
	c.mu.Unlock()
	c.commitStarts(ctx, commits)
	return starts, ctx.Err()
}

func (c *Consumer) commitStarts(ctx context.Context, commits map[*epochState]position) {
	var lost *NotHeldError // then it is its next owner who starts
	if err := c.commit(ctx, commits, false); err != nil && ctx.Err() == nil && !errors.As(err, &lost) {
		// Starting all the same would be right for this member only.
		c.mu.Lock()
		c.report("start", Epoch{}, fmt.Errorf("arroyo: the first offsets of the group were not committed: %w", err), isFatal(err))
		c.mu.Unlock()
	}
}

// trying calls f until it succeeds or ctx ends, and reports what is wrong.
func (c *Consumer) trying(ctx context.Context, f func() error) error {
	for pause := minStartPause; ; pause = min(2*pause, maxStartPause) {
		err := f()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.mu.Lock()
		if err == nil {
			c.recovered("start")
			c.mu.Unlock()
			return nil
		}
		if !kerr.IsRetriable(err) || pause > time.Second {
			c.report("start", Epoch{}, fmt.Errorf("arroyo: where to start cannot be found out yet: %w", err), isFatal(err))
		}
		c.mu.Unlock()
		if !c.sleep(ctx, pause) {
			return cmp.Or(ctx.Err(), ErrClosed)
		}
	}
}

// emptyAtStart tells of partitions that start at their end: kgo returns
// nothing for them that would show it.
func (c *Consumer) emptyAtStart(ctx context.Context, offsets map[string]map[int32]kgo.Offset) {
	topics := make([]string, 0, len(offsets))
	for topic := range offsets {
		topics = append(topics, topic)
	}
	listed, err := kadm.NewClient(c.client).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return // the first records that come will show it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for topic, partitions := range offsets {
		for n := range partitions {
			s := c.open[Partition{topic, n}]
			end, ok := listed.Lookup(topic, n)
			if s == nil || !ok || end.Err != nil || s.paused != 0 || s.end >= 0 || s.fetched.offset < end.Offset {
				continue
			}
			s.end = end.Offset
			c.stream.push(&EndOfPartition{Epoch: s.Epoch, Offset: end.Offset})
		}
	}
}
