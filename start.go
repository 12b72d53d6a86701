package arroyo

import (
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
// first fetch of records. Where the group has committed nothing it resolves
// the start policy to a number and commits it at once, so that whoever comes
// next starts at the same place, and not at what the policy means by then.
func (c *Consumer) adjustOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var missing []Partition
	for topic, partitions := range offsets {
		for n, offset := range partitions {
			if offset.EpochOffset().Offset < 0 { // none committed
				missing = append(missing, Partition{topic, n})
			}
		}
	}
	if len(missing) == 0 {
		return offsets, nil
	}
	starts, err := c.resolveStarts(ctx, missing)
	if err != nil {
		return nil, err
	}
	for p, at := range starts {
		offsets[p.Topic][p.Number] = kgo.NewOffset().At(at.offset)
	}
	return offsets, nil
}

// resolveStarts finds where partitions without a committed offset begin, and
// commits that. It tries until ctx ends.
func (c *Consumer) resolveStarts(ctx context.Context, missing []Partition) (map[Partition]position, error) {
	starts := make(map[Partition]position, len(missing))
	err := c.trying(ctx, func() error {
		topics := make(map[string]bool)
		for _, p := range missing {
			topics[p.Topic] = true
		}
		names := make([]string, 0, len(topics))
		for t := range topics {
			names = append(names, t)
		}
		listed, err := kadm.NewClient(c.client).ListStartOffsets(ctx, names...)
		if err != nil {
			return err
		}
		for _, p := range missing {
			l, ok := listed.Lookup(p.Topic, p.Number)
			if !ok {
				return &PartitionError{p, kerr.UnknownTopicOrPartition}
			}
			if l.Err != nil {
				return &PartitionError{p, l.Err}
			}
			starts[p] = position{l.Offset, -1}
		}
		return nil
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
	if err := c.commit(ctx, commits, false); err != nil && ctx.Err() == nil {
		// Starting all the same would be right for this member only.
		c.mu.Lock()
		c.report("start", fmt.Errorf("arroyo: the first offsets of the group were not committed: %w", err), isFatal(err))
		c.mu.Unlock()
	}
	return starts, ctx.Err()
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
			c.report("start", fmt.Errorf("arroyo: where to start cannot be found out yet: %w", err), isFatal(err))
		}
		c.mu.Unlock()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// adrift returns the partitions that kgo owns and nobody reads: their epochs
// were fenced because a commit was told that the member is gone, and then the
// group took the member back as it was, so that no hook names them. Consumer.mu
// is held.
func (c *Consumer) adrift(opening []*epochState) []Partition {
	if c.drainEvent != nil || c.ending {
		return nil
	}
	var ps []Partition
	for p := range c.owned {
		if c.open[p] == nil {
			ps = append(ps, p)
		}
	}
	return ps
}

// takenBack are partitions whose position was set back to what is committed.
// Poll makes an Assigned of it.
type takenBack struct{ partitions []Partition }

func (*takenBack) event() {}

// takeBack sets kgo's positions of partitions to the committed offsets. They
// are paused until the new epochs are open, so that nothing in between is
// dropped. It runs in a hook, which keeps the group as it is meanwhile.
func (c *Consumer) takeBack(ps []Partition, deadline time.Time) {
	ctx, cancel := context.WithDeadline(c.root, deadline)
	defer cancel()
	c.client.PauseFetchPartitions(byTopic(ps))
	at, err := c.committedOrStart(ctx, ps)
	if err != nil {
		// The broker cannot be reached, so the session is about to end;
		// the next one tries again.
		c.client.ResumeFetchPartitions(byTopic(ps))
		return
	}
	c.client.SetOffsets(at)
	c.mu.Lock()
	c.stream.push(&takenBack{ps})
	c.mu.Unlock()
}

func (c *Consumer) committedOrStart(ctx context.Context, ps []Partition) (map[string]map[int32]kgo.EpochOffset, error) {
	at := make(map[string]map[int32]kgo.EpochOffset)
	var missing []Partition
	err := c.trying(ctx, func() error {
		committed, err := kadm.NewClient(c.client).FetchOffsetsForTopics(ctx, c.group, c.topics...)
		if err != nil {
			return err
		}
		clear(at)
		missing = missing[:0]
		for _, p := range ps {
			if at[p.Topic] == nil {
				at[p.Topic] = make(map[int32]kgo.EpochOffset)
			}
			o, ok := committed.Lookup(p.Topic, p.Number)
			switch {
			case ok && o.Err != nil:
				return &PartitionError{p, o.Err}
			case !ok || o.At < 0:
				missing = append(missing, p)
			default:
				at[p.Topic][p.Number] = kgo.EpochOffset{Epoch: o.LeaderEpoch, Offset: o.At}
			}
		}
		return nil
	})
	if err != nil || len(missing) == 0 {
		return at, err
	}
	starts, err := c.resolveStarts(ctx, missing)
	for p, s := range starts {
		at[p.Topic][p.Number] = kgo.EpochOffset{Epoch: -1, Offset: s.offset}
	}
	return at, err
}

// reopen opens new epochs for partitions that were taken back and are still
// ours. Consumer.mu is held.
func (c *Consumer) reopen(ev *takenBack) Event {
	var states []*epochState
	for _, p := range ev.partitions {
		if c.owned[p] && c.open[p] == nil && c.drainEvent == nil && !c.ending {
			states = append(states, c.openEpoch(p))
		}
	}
	if len(states) == 0 {
		return nil
	}
	return &Assigned{Epochs: epochsOf(states), states: states, Reason: errors.New("arroyo: the group took this member back")}
}

func byTopic(ps []Partition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.Number)
	}
	return m
}
