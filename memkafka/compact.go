package memkafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Compact compacts the topic once, as the log cleaner does with a topic of cleanup.policy=compact: in each partition, of
// the records with the same key only the last one stays, where it is, and records whose value is null go once they are
// older than delete.retention.ms, a day by default. The last batch of each partition, mostly what the last call of a
// produce method appended, stays whole, as Kafka leaves the segment alone that is written to. Between calls of Compact, the topic is an ordinary
// one.
//
// It fails if the topic does not exist or has records without a key, which Kafka does not accept in such topics.
//
// Here compaction moves the start of the log, see [Broker.Bounds], to the first record that stays; in Kafka the start
// stays. A consumer that goes on from below it is told OFFSET_OUT_OF_RANGE here, and finds the next record there.
func (b *Broker) Compact(topic string) {
	b.t.Helper()
	if err := b.compact(topic); err != nil {
		b.fail("compact topic %q: %w", topic, err)
	}
}

func (b *Broker) compact(topic string) error {
	records, err := b.records(topic)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Key == nil {
			return fmt.Errorf("the record at offset %d of partition %d has no key: Kafka refuses such records in compacted topics",
				r.Offset, r.Partition)
		}
	}
	release, err := b.takeTurn()
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	before := b.cluster.TopicInfo(topic)
	if before == nil {
		return errDeleted
	}
	if err := b.setCleanupPolicy(ctx, topic, kmsg.StringPtr("compact")); err != nil {
		return b.why(ctx, err)
	}
	b.cluster.Compact()
	b.tap.changes.happen()
	return b.why(ctx, b.setCleanupPolicy(ctx, topic, before.Configs["cleanup.policy"]))
}

// setCleanupPolicy sets it, or with nil goes back to the default.
func (b *Broker) setCleanupPolicy(ctx context.Context, topic string, policy *string) error {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name = "cleanup.policy"
	c.Value = policy
	c.Op = kmsg.IncrementalAlterConfigOpSet
	if policy == nil {
		c.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeTopic
	r.ResourceName = topic
	r.Configs = append(r.Configs, c)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}
