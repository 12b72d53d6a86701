package memkafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
)

// CreateTopic creates a topic with that many partitions, at least 1. It fails if the topic exists. With several brokers,
// partition p is led by broker p modulo their number.
func (b *Broker) CreateTopic(name string, partitions int) {
	b.t.Helper()
	if err := b.createTopic(name, partitions); err != nil {
		b.fail("%w", err)
	}
}

func (b *Broker) createTopic(name string, partitions int) error {
	if err := checkTopic(name, partitions); err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	release, err := b.use()
	if err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	defer release()
	defer b.tap.changes.happen()
	switch err := b.cluster.CreateTopic(name, int32(partitions), nil); {
	case errors.Is(err, kerr.TopicAlreadyExists):
		return fmt.Errorf("create topic %q: it exists already: %w", name, err)
	case errors.Is(err, kerr.InvalidTopicException):
		return fmt.Errorf("create topic %q: a topic exists whose name differs only in '.' and '_': %w", name, err)
	case err != nil:
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	if b.brokers == 1 {
		return nil
	}
	// kfake picks leaders at random; the same test should see the same cluster each time.
	for p := range int32(partitions) {
		if err := b.cluster.MoveTopicPartition(name, p, p%int32(b.brokers)); err != nil {
			return fmt.Errorf("create topic %q: place partition %d: %w", name, p, err)
		}
	}
	if err := b.leadElsewhere(name); err != nil {
		return fmt.Errorf("create topic %q: %w", name, err)
	}
	return nil
}

// partitions describes the partitions of a topic, in order.
func (b *Broker) partitions(topic string) ([]*kfake.PartitionInfo, error) {
	release, err := b.use()
	if err != nil {
		return nil, err
	}
	defer release()
	infos := b.cluster.PartitionInfos(topic)
	if len(infos) == 0 {
		return nil, fmt.Errorf("topic %q does not exist: create it with memkafka.Topic or CreateTopic", topic)
	}
	return infos, nil
}
