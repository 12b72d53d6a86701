package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

const (
	newTopicPartitions = 4
	requestTimeout     = 10 * time.Second
)

// cluster is a Kafka, real or in memory, and what the story needs of it
// besides consuming.
type cluster struct {
	name         string
	topic, group string
	partitions   int

	connection  func() []kgo.Opt // how a client reaches it
	closeBroker func()
	client      *kgo.Client // produces, and asks for offsets
	admin       *kadm.Client
}

func connect(ctx context.Context, cfg config) (_ *cluster, err error) {
	k := &cluster{topic: cfg.topic, group: cfg.group}
	if len(cfg.brokers) == 0 {
		broker, err := memkafka.Open()
		if err != nil {
			return nil, err
		}
		k.name = "a broker in memory"
		k.connection = broker.ClientOptions
		k.closeBroker = broker.Close
	} else {
		k.name = strings.Join(cfg.brokers, ",")
		k.connection = func() []kgo.Opt { return []kgo.Opt{kgo.SeedBrokers(cfg.brokers...)} }
		k.closeBroker = func() {}
	}
	// Without this option kgo waits for a broker's answer for ever rather than
	// give up a record that may have been produced.
	opts := append(k.connection(), kgo.AllowIdempotentProduceCancellation())
	if k.client, err = kgo.NewClient(opts...); err != nil {
		k.closeBroker()
		return nil, err
	}
	k.admin = kadm.NewClient(k.client)
	if err := k.prepare(ctx); err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// prepare creates the topic if it is missing.
func (k *cluster) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := k.client.Ping(ctx); err != nil {
		return fmt.Errorf("no broker of %s can be reached: %w", k.name, err)
	}
	const replicas = -1 // the broker's default
	_, createErr := k.admin.CreateTopic(ctx, newTopicPartitions, replicas, nil, k.topic)
	if createErr == nil {
		k.partitions = newTopicPartitions
		return nil
	}
	// Maybe it exists already, or somebody else has to create it.
	topics, err := k.admin.ListTopics(ctx, k.topic)
	if err != nil {
		return fmt.Errorf("look for topic %q: %w", k.topic, err)
	}
	if err := topics[k.topic].Err; err != nil {
		return fmt.Errorf("create topic %q: %w", k.topic, createErr)
	}
	k.partitions = len(topics[k.topic].Partitions)
	return nil
}

// clientOptions returns the options of a consumer's client.
func (k *cluster) clientOptions() []kgo.Opt {
	return append(k.connection(),
		// A member hears of a rebalance with its next heartbeat. The
		// default, 3 s, is better in earnest, but long to watch.
		kgo.HeartbeatInterval(500*time.Millisecond))
}

// produce returns when the broker has acknowledged the records. It does not
// give up halfway when ctx ends: then nobody would know what was produced.
func (k *cluster) produce(ctx context.Context, records []*kgo.Record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return k.client.ProduceSync(ctx, records...).FirstErr()
}

// partitionOffsets says how far the group is in a partition.
type partitionOffsets struct {
	partition int32
	committed int64 // the offset that is read next; -1 if there is none
	end       int64 // of the log
}

// offsets asks the broker for the group's offsets, by partition.
func (k *cluster) offsets(ctx context.Context) ([]partitionOffsets, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ends, err := k.admin.ListEndOffsets(ctx, k.topic)
	if err != nil {
		return nil, fmt.Errorf("ask for the ends of topic %q: %w", k.topic, err)
	}
	if err := ends.Error(); err != nil {
		return nil, fmt.Errorf("ask for the ends of topic %q: %w", k.topic, err)
	}
	committed, err := k.admin.FetchOffsets(ctx, k.group)
	if err != nil {
		return nil, fmt.Errorf("ask for the offsets of group %q: %w", k.group, err)
	}
	offsets := make([]partitionOffsets, k.partitions)
	for i := range offsets {
		p := int32(i)
		offsets[i] = partitionOffsets{partition: p, committed: -1}
		if end, ok := ends.Lookup(k.topic, p); ok {
			offsets[i].end = end.Offset
		}
		if c, ok := committed.Lookup(k.topic, p); ok {
			offsets[i].committed = c.At
		}
	}
	return offsets, nil
}

// waitCaughtUp waits until everything in the topic is processed and committed,
// or ctx ends.
func (k *cluster) waitCaughtUp(ctx context.Context) error {
	for ctx.Err() == nil {
		offsets, err := k.offsets(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && caughtUp(offsets) {
			return nil
		}
		pause(ctx, 100*time.Millisecond)
	}
	return nil
}

func caughtUp(offsets []partitionOffsets) bool {
	for _, o := range offsets {
		if o.committed < o.end {
			return false
		}
	}
	return true
}

func (k *cluster) close() {
	k.client.Close()
	k.closeBroker()
}
