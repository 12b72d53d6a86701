package memkafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer is what the produce methods remember. Calls come one at a time: what one of them appends stands together in
// each partition.
type producer struct {
	// turn holds one token, for whoever produces. A mutex would do outside of a bubble; inside, waiting for one stops
	// time while the holder waits for the broker.
	turn chan struct{}
	next map[string]int        // by topic, the partition that Produce goes on with
	seen map[string]topicState // by topic, what the client knows of it
}

// topicState changes when a topic is created anew or gets partitions.
type topicState struct {
	id         [16]byte
	partitions int
}

func newProducer() producer {
	p := producer{turn: make(chan struct{}, 1), next: make(map[string]int), seen: make(map[string]topicState)}
	p.turn <- struct{}{}
	return p
}

// Produce appends the values to the topic, as records without a key: the topic's first value goes to partition 0, the
// next to partition 1, and so on around; later calls go on where the last one ended. It returns when the broker has
// acknowledged them all. It fails if the topic does not exist, or if that takes more than a minute (of virtual time in a
// bubble).
func (b *Broker) Produce(topic string, values ...string) {
	b.t.Helper()
	if err := b.produceValues(topic, values); err != nil {
		b.fail("produce: %w", err)
	}
}

// ProduceRecords appends the records, each to the topic and partition that it names, with its key, value, headers and
// timestamp. A nil key or value is null. A zero timestamp is replaced by the time now; Kafka keeps milliseconds. All
// other fields are ignored: offsets are given by the broker. It returns when the broker has acknowledged them all.
//
// It fails, before anything is appended, if a topic or partition does not exist, and if the acknowledgement takes more
// than a minute (of virtual time in a bubble). The records are neither changed nor
// kept: use [Broker.Records] to see what became of them.
func (b *Broker) ProduceRecords(records ...*kgo.Record) {
	b.t.Helper()
	if err := b.produceRecords(records); err != nil {
		b.fail("produce: %w", err)
	}
}

func (b *Broker) produceValues(topic string, values []string) error {
	release, err := b.takeTurn()
	if err != nil {
		return err
	}
	defer release()
	infos, err := b.partitions(topic)
	if err != nil {
		return err
	}
	b.refresh(topic, len(infos))
	next := b.producer.next[topic]
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: int32((next + i) % len(infos)), Value: []byte(v)}
	}
	b.producer.next[topic] = (next + len(values)) % len(infos)
	return b.send(records)
}

func (b *Broker) produceRecords(records []*kgo.Record) error {
	release, err := b.takeTurn()
	if err != nil {
		return err
	}
	defer release()
	counts := make(map[string]int)
	copies := make([]*kgo.Record, len(records))
	for i, r := range records {
		if r == nil {
			return fmt.Errorf("record %d is nil", i)
		}
		count, ok := counts[r.Topic]
		if !ok {
			infos, err := b.partitions(r.Topic)
			if err != nil {
				return fmt.Errorf("record %d: %w", i, err)
			}
			count = len(infos)
			counts[r.Topic] = count
			b.refresh(r.Topic, count)
		}
		if r.Partition < 0 || int(r.Partition) >= count {
			return fmt.Errorf("record %d: topic %q has no partition %d, only 0 to %d", i, r.Topic, r.Partition, count-1)
		}
		// kgo writes to the records that it sends.
		copies[i] = &kgo.Record{
			Topic: r.Topic, Partition: r.Partition,
			Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp,
		}
	}
	return b.send(copies)
}

func (b *Broker) takeTurn() (release func(), err error) {
	done, err := b.use()
	if err != nil {
		return nil, err
	}
	select {
	case <-b.producer.turn:
		return func() { b.producer.turn <- struct{}{}; done() }, nil
	case <-b.ctx.Done():
		done()
		return nil, errClosed
	}
}

// refresh makes the client look at the topic again if it has changed, which on its own it would do after minutes.
func (b *Broker) refresh(topic string, partitions int) {
	state := topicState{partitions: partitions}
	if info := b.cluster.TopicInfo(topic); info != nil {
		state.id = info.TopicID
	}
	seen, ok := b.producer.seen[topic]
	b.producer.seen[topic] = state
	if ok && seen != state {
		b.client.PurgeTopicsFromProducing(topic)
	}
}

func (b *Broker) send(records []*kgo.Record) error {
	// Not kgo.RecordDeliveryTimeout: that counts from the records' timestamps.
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	for _, result := range b.client.ProduceSync(ctx, records...) {
		if err := result.Err; err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("not acknowledged within %v: %w", waitTimeout, err)
			}
			if b.ctx.Err() != nil {
				err = errClosed
			}
			return fmt.Errorf("topic %q, partition %d: %w", result.Record.Topic, result.Record.Partition, err)
		}
	}
	return nil
}
