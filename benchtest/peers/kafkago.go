package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const kafkaGoModule = "github.com/segmentio/kafka-go"

// kafkaGos are a Reader of kafka-go. With defaults it is given each message to
// commit, and does so every second; the tuned one fetches up to 10 MB, queues
// 10,000 messages, and is given the last message of each partition every second.
func kafkaGos() []peer {
	return []peer{
		{name: "kafka-go", variant: defaults, module: kafkaGoModule, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			config := kafkaGoConfig(j)
			config.CommitInterval = time.Second
			return readKafkaGo(ctx, j, config, commitEach)
		}},
		{name: "kafka-go", variant: tuned, module: kafkaGoModule, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			config := kafkaGoConfig(j)
			config.MaxBytes = 10_000_000
			config.QueueCapacity = 10_000
			config.MaxWait = 250 * time.Millisecond
			return readKafkaGo(ctx, j, config, commitLast)
		}},
	}
}

func kafkaGoConfig(j job) kafka.ReaderConfig {
	return kafka.ReaderConfig{
		Brokers:     []string{j.Address},
		GroupID:     j.Group,
		Topic:       bench.Topic,
		StartOffset: kafka.FirstOffset,
	}
}

func readKafkaGo(ctx context.Context, j job, config kafka.ReaderConfig, read func(context.Context, *kafka.Reader, *count) error) (bench.Tally, bench.Usage, error) {
	c := startCount(j)
	reader := kafka.NewReader(config)
	err := read(ctx, reader, c)
	return c.result(errors.Join(err, reader.Close()))
}

func commitEach(ctx context.Context, reader *kafka.Reader, c *count) error {
	for !c.done() {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		c.do(m.Value)
		if err := reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func commitLast(ctx context.Context, reader *kafka.Reader, c *count) error {
	last := map[int]kafka.Message{} // by partition
	commit := func() error {
		return reader.CommitMessages(ctx, slices.Collect(maps.Values(last))...)
	}
	committed := time.Now()
	for n := 0; !c.done(); n++ {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		c.do(m.Value)
		last[m.Partition] = m
		if n%100 == 0 && time.Since(committed) >= time.Second {
			if err := commit(); err != nil {
				return err
			}
			committed = time.Now()
			clear(last)
		}
	}
	return commit()
}
