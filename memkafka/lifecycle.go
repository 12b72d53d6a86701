package memkafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitions raises the number of the topic's partitions to total. The new ones are empty, and with several brokers
// partition p is led by broker p modulo their number, or another if that is stopped. It fails if the topic does not exist, has that many already, or
// total is more than 100,000.
//
// Clients learn of new partitions when they refresh their metadata: with kgo's defaults within five minutes, members of
// a KIP-848 group within five seconds.
func (b *Broker) AddPartitions(topic string, total int) {
	b.t.Helper()
	if err := b.addPartitions(topic, total); err != nil {
		b.fail("add partitions to topic %q: %w", topic, err)
	}
}

func (b *Broker) addPartitions(topic string, total int) error {
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	infos, err := b.partitions(topic)
	if err != nil {
		return err
	}
	if total <= len(infos) || total > maxPartitions {
		return fmt.Errorf("it has %d partitions: give a total of %d to %d, Kafka has no way to remove partitions",
			len(infos), len(infos)+1, maxPartitions)
	}
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic = topic
	rt.Count = int32(total)
	for p := len(infos); p < total; p++ { // else kfake picks leaders at random
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = []int32{int32(p % b.brokers)}
		rt.Assignment = append(rt.Assignment, a)
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = int32(waitTimeout.Milliseconds())
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return b.why(ctx, err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
	}
	b.log.add("topic %q: it has %d partitions now", topic, total)
	return b.leadElsewhere(topic)
}

// why explains an error of something that ctx, made of b.ctx and waitTimeout, put a bound to.
func (b *Broker) why(ctx context.Context, err error) error {
	switch {
	case err != nil && b.ctx.Err() != nil:
		return errClosed
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("not within %v: %w", waitTimeout, err)
	}
	return err
}

// DeleteTopic deletes the topic with its records, and what groups have committed for it, as Kafka does. It fails if the
// topic does not exist.
//
// [Broker.CreateTopic] may create a topic of that name again. That is another topic, with an ID of its own and offsets
// from 0: clients that consume the old one get UNKNOWN_TOPIC_ID until they look the name up again.
func (b *Broker) DeleteTopic(name string) {
	b.t.Helper()
	if err := b.deleteTopic(name); err != nil {
		b.fail("delete topic: %w", err)
	}
}

func (b *Broker) deleteTopic(name string) error {
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	if _, err := b.partitions(name); err != nil {
		return err
	}
	err = b.cluster.DeleteTopic(name)
	b.tap.changes.happen()
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) { // deleted by somebody else meanwhile
		return fmt.Errorf("topic %q: %w", name, err)
	}
	b.log.add("topic %q: it is deleted", name)
	return nil
}
