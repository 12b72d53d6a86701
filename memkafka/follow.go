package memkafka

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Follow returns the records of the topic, first those that are there and then those that come, as a sequence to range
// over. It sees what a consumer with kgo.ReadCommitted sees. Within a partition records come in order; of several
// partitions it takes turns.
//
// While there is nothing new, the loop waits: it looks again after a millisecond, and then less and less often, up to
// every 256 milliseconds (of virtual time in a bubble). It ends when ctx ends, when the broker closes, or when the loop
// is left; nothing is left running then. A bound to the wait is one of ctx:
//
//	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
//	defer cancel()
//	for record := range broker.Follow(ctx, "events.dead") {
//		...
//	}
//
// Partitions that are added meanwhile are followed too. If the topic is deleted, the loop waits for one of that name and
// goes on at its start. Each range over the sequence begins at the start of the log. The records are the caller's.
//
// Follow fails at once if the topic does not exist, and the loop fails if the broker is made to answer fetch requests
// with errors.
func (b *Broker) Follow(ctx context.Context, topic string) iter.Seq[*kgo.Record] {
	b.t.Helper()
	if _, err := b.partitions(topic); err != nil {
		b.fail("follow topic %q: %w", topic, err)
	}
	return func(yield func(*kgo.Record) bool) {
		b.t.Helper()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()

		f := follower{broker: b, topic: topic}
		for pause := time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 256*time.Millisecond) {
			more, err := f.look(ctx, yield)
			switch {
			case ctx.Err() != nil, errors.Is(err, errClosed):
				return
			case errors.Is(err, errDeleted):
			case err != nil:
				b.fail("follow topic %q: %w", topic, err)
			case !more:
				return
			}
			if f.found {
				pause = time.Millisecond
				continue
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}
}

// follower is where one range over a sequence is.
type follower struct {
	broker *Broker
	topic  string
	id     [16]byte
	next   map[int32]int64 // by partition, the offset to go on from
	found  bool            // whether the last look found something
}

// look yields what is new in each partition. It returns false if the loop was left.
func (f *follower) look(ctx context.Context, yield func(*kgo.Record) bool) (more bool, err error) {
	f.found = false
	infos, err := f.refresh()
	if err != nil {
		return true, err
	}
	for _, info := range infos {
		p, end := info.Partition, info.LastStableOffset
		if f.next[p] >= end {
			continue
		}
		records, err := f.read(ctx, p, end)
		if err != nil {
			return true, err
		}
		f.found = true
		f.next[p] = end
		for _, r := range records {
			if ctx.Err() != nil || !yield(r) {
				return false, nil
			}
		}
	}
	return true, nil
}

func (f *follower) refresh() ([]*kfake.PartitionInfo, error) {
	release, err := f.broker.use()
	if err != nil {
		return nil, err
	}
	defer release()
	id, err := f.broker.topicID(f.topic)
	if err != nil {
		return nil, err
	}
	if f.next == nil || f.id != id {
		f.id, f.next = id, make(map[int32]int64)
	}
	return f.broker.cluster.PartitionInfos(f.topic), nil
}

// read does not yield itself: the broker can't close while it is in use, and what a loop does may take any time.
func (f *follower) read(ctx context.Context, partition int32, end int64) ([]*kgo.Record, error) {
	release, err := f.broker.use()
	if err != nil {
		return nil, err
	}
	defer release()
	return f.broker.partitionRecords(ctx, f.topic, f.id, partition, f.next[partition], end)
}
