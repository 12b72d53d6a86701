package memkafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Bounds returns where the partition's log begins and ends: the offset of the oldest record that is left, and the offset
// that the next record gets, Kafka's high watermark. They are equal if the log is empty. There may be offsets between
// them that have no record, see [Broker.Skip], and control records, see [Broker.BeginTransaction]. It fails if there is
// no such topic or partition.
func (b *Broker) Bounds(topic string, partition int32) (start, end int64) {
	b.t.Helper()
	info, err := b.partition(topic, partition)
	if err != nil {
		b.fail("look at the bounds of topic %q: %w", topic, err)
	}
	return info.LogStartOffset, info.HighWatermark
}

// End returns the offset that the next record gets in each partition of the topic, which makes it the counterpart of
// [Broker.Committed]. It fails if the topic does not exist. The map is the caller's.
func (b *Broker) End(topic string) map[int32]int64 {
	b.t.Helper()
	infos, err := b.partitions(topic)
	if err != nil {
		b.fail("look at the end of topic %q: %w", topic, err)
	}
	ends := make(map[int32]int64, len(infos))
	for _, info := range infos {
		ends[info.Partition] = info.HighWatermark
	}
	return ends
}

// ExpireRecords deletes the partition's records below the offset before, as retention does: its log then starts there.
// A consumer that was about to read one of them gets OFFSET_OUT_OF_RANGE. It fails if there is no such topic or
// partition, and if before is outside of the log's [Broker.Bounds].
func (b *Broker) ExpireRecords(topic string, partition int32, before int64) {
	b.t.Helper()
	if err := b.expireRecords(topic, partition, before); err != nil {
		b.fail("expire records of topic %q: %w", topic, err)
	}
}

func (b *Broker) expireRecords(topic string, partition int32, before int64) error {
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	info, err := b.partition(topic, partition)
	if err != nil {
		return err
	}
	outside := fmt.Errorf("partition %d goes from offset %d to %d, and %d is outside of that",
		partition, info.LogStartOffset, info.HighWatermark, before)
	if before < 0 { // kfake takes -1 for the end
		return outside
	}
	err = b.cluster.DeleteRecords(topic, partition, before)
	b.tap.changes.happen()
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return outside
	}
	if err == nil {
		b.log.add("topic %q: the records of partition %d below offset %d have expired", topic, partition, before)
	}
	return err
}

// partition describes a partition.
func (b *Broker) partition(topic string, partition int32) (*kfake.PartitionInfo, error) {
	infos, err := b.partitions(topic)
	if err != nil {
		return nil, err
	}
	if partition < 0 || int(partition) >= len(infos) {
		return nil, fmt.Errorf("topic %q has no partition %d, only 0 to %d", topic, partition, len(infos)-1)
	}
	return infos[partition], nil
}
