package realkafka

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicTimeout is for creating a topic or deleting it.
const topicTimeout = 30 * time.Second

// Topic creates a topic with a new name and returns that when all partitions
// have a leader. A Kafka that somebody else started has its default number of
// replicas, and the topic is deleted there when the test ends.
func (k *Kafka) Topic(tb testing.TB, partitions int) string {
	tb.Helper()
	topic := newName(tb)
	if err := k.createTopic(tb.Context(), topic, partitions); err != nil {
		tb.Fatalf("create the topic %s: %v", topic, err)
	}
	if k.broker == nil {
		tb.Cleanup(func() {
			// The context of the test has ended by now.
			if err := k.deleteTopic(context.Background(), topic); err != nil {
				tb.Errorf("delete the topic %s: %v", topic, err)
			}
		})
	}
	return topic
}

func (k *Kafka) createTopic(ctx context.Context, topic string, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	// A client for each call, as one for all would keep goroutines.
	client, err := kgo.NewClient(k.ClientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()

	const defaultReplicas = -1
	if _, err := kadm.NewClient(client).CreateTopic(ctx, int32(partitions), defaultReplicas, nil, topic); err != nil {
		return err
	}
	for {
		err := hasLeaders(ctx, client, topic, partitions)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("wait for its leaders: %w, at last: %w", context.Cause(ctx), err)
		}
	}
}

func (k *Kafka) deleteTopic(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	client, err := kgo.NewClient(k.ClientOptions()...)
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, topic)
	return err
}

// hasLeaders returns an error unless all partitions of the topic have a leader.
// It asks with a request of its own, as kadm answers from a cache of seconds.
func hasLeaders(ctx context.Context, client *kgo.Client, topic string, partitions int) error {
	req := kmsg.NewPtrMetadataRequest()
	reqTopic := kmsg.NewMetadataRequestTopic()
	reqTopic.Topic = &topic
	req.Topics = append(req.Topics, reqTopic)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return errors.New("the metadata does not have the topic")
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return err
	}
	if n := len(resp.Topics[0].Partitions); n != partitions {
		return fmt.Errorf("the metadata has %d of %d partitions", n, partitions)
	}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return fmt.Errorf("partition %d: %w", p.Partition, err)
		}
		if p.Leader < 0 {
			return fmt.Errorf("partition %d has no leader", p.Partition)
		}
	}
	return nil
}
