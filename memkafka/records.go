package memkafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records returns everything that is in the topic now, by partition and then by offset. It sees what a consumer with
// kgo.ReadCommitted sees: no control records, and of transactions only those that are committed. It fails if the topic
// does not exist, or if reading takes more than a minute (of virtual time in a bubble). The records are the caller's.
func (b *Broker) Records(topic string) []*kgo.Record {
	b.t.Helper()
	records, err := b.records(topic)
	if err != nil {
		b.fail("read topic %q: %w", topic, err)
	}
	return records
}

func (b *Broker) records(topic string) ([]*kgo.Record, error) {
	release, err := b.use()
	if err != nil {
		return nil, err
	}
	defer release()
	infos, err := b.partitions(topic)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	var records []*kgo.Record
	id, err := b.topicID(topic)
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		rs, err := b.partitionRecords(ctx, topic, id, info.Partition, 0, info.LastStableOffset)
		switch {
		case err != nil && b.ctx.Err() != nil:
			return nil, errClosed
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("partition %d: not within %v: %w", info.Partition, waitTimeout, err)
		case err != nil:
			return nil, fmt.Errorf("partition %d: %w", info.Partition, err)
		}
		records = append(records, rs...)
	}
	return records, nil
}

// errDeleted is said of a topic that is gone, or another one of its name, since we looked it up.
var errDeleted = errors.New("the topic was deleted meanwhile")

func (b *Broker) topicID(topic string) (id [16]byte, err error) {
	info := b.cluster.TopicInfo(topic)
	if info == nil {
		return id, errDeleted
	}
	return info.TopicID, nil
}

// partitionRecords reads a partition from the offset from up to the offset end by plain fetch requests. A consumer would
// have to guess when it is through: the last offsets may be control records, of aborted transactions, or compacted away.
func (b *Broker) partitionRecords(ctx context.Context, topic string, id [16]byte, partition int32, from, end int64) ([]*kgo.Record, error) {
	var records []*kgo.Record
	for offset := from; offset < end; {
		// Asked for each time: the log's start and the leader may have moved.
		info := b.cluster.PartitionInfo(topic, partition)
		if info == nil {
			return nil, errDeleted
		}
		if offset < info.LogStartOffset {
			offset = info.LogStartOffset
			continue
		}
		rp, err := b.fetch(ctx, topic, id, partition, offset, info.Leader)
		if err != nil {
			return nil, fmt.Errorf("fetch at offset %d: %w", offset, err)
		}
		fetched, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Topic:          topic,
			Partition:      partition,
			Offset:         offset,
			IsolationLevel: kgo.ReadCommitted(),
		}, rp, kgo.DefaultDecompressor(), nil)
		switch {
		case errors.Is(fetched.Err, kerr.NotLeaderForPartition), errors.Is(fetched.Err, kerr.OffsetOutOfRange):
			// Moved, or deleted, since we asked.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return nil, fmt.Errorf("fetch at offset %d: %w", offset, fetched.Err)
			}
			continue
		case errors.Is(fetched.Err, kerr.UnknownTopicID), errors.Is(fetched.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("fetch at offset %d: %w: %w", offset, errDeleted, fetched.Err)
		case fetched.Err != nil:
			return nil, fmt.Errorf("fetch at offset %d: %w", offset, fetched.Err)
		case next <= offset:
			return records, nil // nothing is left up to end
		}
		records = append(records, fetched.Records...)
		offset = next
	}
	return records, nil
}

func (b *Broker) fetch(ctx context.Context, topic string, id [16]byte, partition int32, offset int64, leader int32) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition = partition
	p.FetchOffset = offset
	p.PartitionMaxBytes = 16 << 20
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	t.TopicID = id
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 16 << 20
	req.IsolationLevel = 1 // read committed
	req.Topics = append(req.Topics, t)

	kresp, err := b.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if rp := &resp.Topics[i].Partitions[j]; rp.Partition == partition {
				return rp, nil
			}
		}
	}
	return nil, errors.New("the response lacks the partition")
}
