package memkafka

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// producer is what the produce methods remember. Calls come one at a time: what one of them appends stands together in
// each partition.
type producer struct {
	// turn holds one token, for whoever produces. A mutex would do outside of a bubble; inside, waiting for one stops
	// time while the holder waits for the broker.
	turn chan struct{}
	next map[string]int      // by topic, the partition that Produce goes on with
	ids  map[string][16]byte // by topic, which one next is of

	transactions atomic.Int64 // how many there were
}

// sender is a client that produces: the broker's own, or a transaction's. It is used by whoever has the turn.
type sender struct {
	*kgo.Client
	seen map[string]topicState // by topic, what the client knows of it
	sent map[string]int32      // by topic, a partition that has records of it
}

func newSender(client *kgo.Client) *sender {
	return &sender{Client: client, seen: make(map[string]topicState), sent: make(map[string]int32)}
}

// topicState changes when a topic is created anew or gets partitions.
type topicState struct {
	id         [16]byte
	partitions int
}

func newProducer() *producer {
	p := &producer{turn: make(chan struct{}, 1), next: make(map[string]int), ids: make(map[string][16]byte)}
	p.turn <- struct{}{}
	return p
}

// Produce appends the values to the topic, as records without a key: the topic's first value goes to partition 0, the
// next to partition 1, and so on around; later calls go on where the last one ended. It returns when the broker has
// acknowledged them all. It fails if the topic does not exist, or if that takes more than a minute (of virtual time in a
// bubble).
func (b *Broker) Produce(topic string, values ...string) {
	b.t.Helper()
	if err := b.produceValues(b.sender, topic, stringValues(values)); err != nil {
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
	if err := b.produceRecords(b.sender, records); err != nil {
		b.fail("produce: %w", err)
	}
}

func stringValues(values []string) [][]byte {
	bs := make([][]byte, len(values))
	for i, v := range values {
		bs[i] = []byte(v)
	}
	return bs
}

func (b *Broker) produceValues(s *sender, topic string, values [][]byte) error {
	release, err := b.takeTurn()
	if err != nil {
		return err
	}
	defer release()
	infos, err := b.partitions(topic)
	if err != nil || len(values) == 0 {
		return err
	}
	if err := b.refresh(s, topic, len(infos)); err != nil {
		return err
	}
	next := b.producer.next[topic]
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: int32((next + i) % len(infos)), Value: v}
	}
	b.producer.next[topic] = (next + len(values)) % len(infos)
	return b.send(s, records)
}

func (b *Broker) produceRecords(s *sender, records []*kgo.Record) error {
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
	for topic, count := range counts {
		if err := b.refresh(s, topic, count); err != nil {
			return err
		}
	}
	return b.send(s, copies)
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

// refresh makes the client of s look at the topic again if it has changed, which on its own it would do after minutes.
func (b *Broker) refresh(s *sender, topic string, partitions int) error {
	state := topicState{partitions: partitions}
	if info := b.cluster.TopicInfo(topic); info != nil {
		state.id = info.TopicID
	}
	if b.producer.ids[topic] != state.id {
		delete(b.producer.next, topic) // another topic, whose first value goes to partition 0
		b.producer.ids[topic] = state.id
	}
	seen, ok := s.seen[topic]
	s.seen[topic] = state
	switch {
	case !ok || seen == state:
		return nil
	case seen.id != state.id:
		s.PurgeTopicsFromProducing(topic)
		return nil
	}
	// Not by a purge: the client would count the records that it sends from 0 again, and the broker take them for ones
	// that it has.
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	return b.known(ctx, s, topic, int32(partitions-1))
}

// known waits until the client of s has noted that there is this partition.
func (b *Broker) known(ctx context.Context, s *sender, topic string, partition int32) error {
	for {
		leader, _, err := s.PartitionLeader(topic, partition)
		if leader >= 0 && err == nil {
			return nil
		}
		s.ForceMetadataRefresh()
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return b.why(ctx, fmt.Errorf("topic %q: wait for metadata of partition %d: %w", topic, partition, ctx.Err()))
		}
	}
}

func (b *Broker) send(s *sender, records []*kgo.Record) error {
	// Not kgo.RecordDeliveryTimeout: that counts from the records' timestamps.
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	for _, result := range s.ProduceSync(ctx, records...) {
		if err := result.Err; err != nil {
			if ctx.Err() != nil {
				err = fmt.Errorf("not acknowledged within %v: %w", waitTimeout, err)
			}
			if b.ctx.Err() != nil {
				err = errClosed
			}
			return fmt.Errorf("topic %q, partition %d: %w", result.Record.Topic, result.Record.Partition, err)
		}
		s.sent[result.Record.Topic] = result.Record.Partition
	}
	return nil
}
