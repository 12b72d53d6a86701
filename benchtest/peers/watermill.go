package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const watermillModule = "github.com/ThreeDotsLabs/watermill-kafka/v3"

// watermills are a subscriber of Watermill, which gives out the next message of
// a partition when the one before is acked, and commits every second. The tuned
// one has the settings of the tuned Sarama, which it is made of, and a goroutine
// for each core.
func watermills() []peer {
	return []peer{
		{name: "watermill", variant: defaults, module: watermillModule, slow: true, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			return readWatermill(ctx, j, watermillConfig(), 1)
		}},
		{name: "watermill", variant: tuned, module: watermillModule, slow: true, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			return readWatermill(ctx, j, tuneSarama(watermillConfig()), runtime.GOMAXPROCS(0))
		}},
	}
}

func watermillConfig() *sarama.Config {
	config := kafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func readWatermill(ctx context.Context, j job, config *sarama.Config, goroutines int) (bench.Tally, bench.Usage, error) {
	c := startCount(j)
	return c.result(func() (err error) {
		subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers:               []string{j.Address},
			Unmarshaler:           kafka.DefaultMarshaler{},
			ConsumerGroup:         j.Group,
			OverwriteSaramaConfig: config,
		}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		var reading sync.WaitGroup
		defer func() {
			err = errors.Join(err, subscriber.Close())
			reading.Wait()
		}()
		messages, err := subscriber.Subscribe(ctx, bench.Topic)
		if err != nil {
			return err
		}
		for range goroutines {
			reading.Go(func() {
				for m := range messages {
					c.do(m.Payload)
					m.Ack()
				}
			})
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
		// A subscriber that is closed at once may not see the last acks.
		return awaitCommit(ctx, j)
	}())
}

// awaitCommit waits until a job's group has committed all records.
func awaitCommit(ctx context.Context, j job) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := j.source().Committed(ctx, j.Group)
		if n == j.Layout.Records || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
