package memkafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

// WaitCaughtUp waits until the group has committed everything that there is to read in the topic: until in each
// partition no record that [Broker.Records] would return is at or above the group's committed offset. It waits for up to
// a minute (of virtual time in a bubble) and then fails, saying how far the group is. It fails at once if the topic does
// not exist.
//
// That is not the same as being at the partition's end. A client can commit no more than the offset behind a record that
// it got, so where a log ends in control records, a gap, or aborted transactions, the group has caught up behind the
// last record before those, or if there is none, without a commit at all. What an open transaction holds back need not
// be committed, nor what has expired, nor the records of aborted transactions, which consumers without kgo.ReadCommitted
// get nevertheless. For a group of those wait for an offset, with [Broker.WaitCommitted].
//
// What is produced during the wait has to be committed too.
func (b *Broker) WaitCaughtUp(group, topic string) {
	b.t.Helper()
	if err := b.waitCaughtUp(group, topic); err != nil {
		b.fail("wait until group %q has caught up with topic %q: %w", group, topic, err)
	}
}

func (b *Broker) waitCaughtUp(group, topic string) error {
	if _, err := b.partitions(topic); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	l := lag{broker: b, topic: topic, ends: make(map[int32]readableEnd)}
	var behind []string
	var failed error
	err := b.wait(waitTimeout, group, func(info *kfake.GroupInfo) bool {
		behind, failed = l.behind(ctx, committed(info, topic))
		return failed != nil || len(behind) == 0
	})
	switch {
	case errors.Is(err, errClosed), errors.Is(failed, errClosed), b.ctx.Err() != nil:
		return errClosed
	case failed != nil:
		return b.why(ctx, failed)
	case err != nil:
		return fmt.Errorf("%w: %s", err, strings.Join(behind, ", "))
	}
	return nil
}

// lag compares commits with what can be read of a topic.
type lag struct {
	broker *Broker
	topic  string
	id     [16]byte
	ends   map[int32]readableEnd // by partition
}

// readableEnd is the offset behind the last record that can be read, as long as the last stable offset is this one.
type readableEnd struct {
	stable int64
	offset int64
}

// behind describes the partitions whose commit is not behind the last record that can be read.
func (l *lag) behind(ctx context.Context, commits map[int32]int64) ([]string, error) {
	release, err := l.broker.use()
	if err != nil {
		return nil, err
	}
	defer release()
	infos, err := l.broker.partitions(l.topic)
	if err != nil {
		return nil, err
	}
	id, err := l.broker.topicID(l.topic)
	if err != nil {
		return nil, err
	}
	if id != l.id {
		l.id = id
		clear(l.ends)
	}
	var behind []string
	for _, info := range infos {
		p, stable := info.Partition, info.LastStableOffset
		commit, ok := commits[p]
		if commit >= stable {
			continue
		}
		end, known := l.ends[p]
		if !known || end.stable != stable {
			end = readableEnd{stable: stable}
			if end.offset, err = l.readableEnd(ctx, info); err != nil {
				return nil, fmt.Errorf("partition %d: %w", p, err)
			}
			l.ends[p] = end
		}
		switch {
		case end.offset <= max(commit, info.LogStartOffset):
		case ok:
			behind = append(behind, fmt.Sprintf("partition %d: %d is committed of %d", p, commit, end.offset))
		default:
			behind = append(behind, fmt.Sprintf("partition %d: nothing is committed of %d", p, end.offset))
		}
	}
	return behind, nil
}

// readableEnd searches from the end for the last record that can be read, in steps that double: mostly it is right
// there, and a partition may be long.
func (l *lag) readableEnd(ctx context.Context, info *kfake.PartitionInfo) (int64, error) {
	start, stable := info.LogStartOffset, info.LastStableOffset
	for step := int64(1); ; step *= 2 {
		from := max(start, stable-step)
		records, err := l.broker.partitionRecords(ctx, l.topic, l.id, info.Partition, from, stable)
		if err != nil {
			return 0, err
		}
		if len(records) > 0 {
			return records[len(records)-1].Offset + 1, nil
		}
		if from == start {
			return start, nil
		}
	}
}
