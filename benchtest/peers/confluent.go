//go:build cgo

package main

import (
	"context"
	"errors"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const confluentModule = "github.com/confluentinc/confluent-kafka-go/v2"

// confluents are a consumer of confluent-kafka-go, that is, of librdkafka. It
// commits every second what was stored, which with defaults is each message;
// the tuned one stores one of 1,000, and fetches on 10 ms after its queue was
// full, instead of a second.
func confluents() []peer {
	return []peer{
		{name: "confluent-kafka-go", variant: defaults, module: confluentModule, slow: true, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			return readConfluent(ctx, j, confluentConfig(j), 1)
		}},
		{name: "confluent-kafka-go", variant: tuned, module: confluentModule, slow: true, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			config := confluentConfig(j)
			config["fetch.queue.backoff.ms"] = 10
			return readConfluent(ctx, j, config, 1000)
		}},
	}
}

// missingPeers has a line for each library that is not compiled in.
func missingPeers() []string { return nil }

func confluentConfig(j job) kafka.ConfigMap {
	return kafka.ConfigMap{
		"bootstrap.servers":        j.Address,
		"group.id":                 j.Group,
		"auto.offset.reset":        "earliest",
		"enable.auto.offset.store": false,
		"auto.commit.interval.ms":  1000,
	}
}

func readConfluent(ctx context.Context, j job, config kafka.ConfigMap, storeEvery int) (bench.Tally, bench.Usage, error) {
	c := startCount(j)
	return c.result(func() (err error) {
		consumer, err := kafka.NewConsumer(&config)
		if err != nil {
			return err
		}
		// It commits what was stored.
		defer func() { err = errors.Join(err, consumer.Close()) }()
		if err := consumer.Subscribe(bench.Topic, nil); err != nil {
			return err
		}
		last := map[int32]*kafka.Message{} // that are not stored, by partition
		for n := 1; !c.done(); {
			m, err := consumer.ReadMessage(100 * time.Millisecond)
			if err != nil {
				if timeout, ok := errors.AsType[kafka.Error](err); ok && timeout.IsTimeout() && ctx.Err() == nil {
					continue
				}
				return errors.Join(err, ctx.Err())
			}
			c.do(m.Value)
			if storeEvery == 1 {
				if _, err := consumer.StoreMessage(m); err != nil {
					return err
				}
				continue
			}
			last[m.TopicPartition.Partition] = m
			if n++; n%storeEvery == 0 || c.done() {
				for _, m := range last {
					if _, err := consumer.StoreMessage(m); err != nil {
						return err
					}
				}
				clear(last)
			}
		}
		return nil
	}())
}
