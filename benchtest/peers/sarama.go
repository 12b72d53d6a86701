package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const saramaModule = "github.com/IBM/sarama"

// saramas are a consumer group of Sarama, which commits marked records every
// second by default. The tuned one fetches 2 MiB of a partition at a time (more
// than that costs more), has longer queues, and marks one of up to 1,000 records.
func saramas() []peer {
	return []peer{
		{name: "sarama", variant: defaults, module: saramaModule, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			return readSarama(ctx, j, saramaConfig(), 1)
		}},
		{name: "sarama", variant: tuned, module: saramaModule, read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
			return readSarama(ctx, j, tuneSarama(saramaConfig()), 1000)
		}},
	}
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}

func tuneSarama(config *sarama.Config) *sarama.Config {
	config.Consumer.Fetch.Default = 2 << 20
	config.Consumer.MaxWaitTime = 250 * time.Millisecond
	config.ChannelBufferSize = 1024
	return config
}

func readSarama(ctx context.Context, j job, config *sarama.Config, markEvery int) (bench.Tally, bench.Usage, error) {
	c := startCount(j)
	return c.result(func() (err error) {
		group, err := sarama.NewConsumerGroup([]string{j.Address}, j.Group, config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, group.Close()) }()
		running, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			<-c.complete
			stop()
		}()
		for !c.done() {
			if err := group.Consume(running, []string{bench.Topic}, &saramaHandler{c, markEvery}); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		return nil
	}())
}

type saramaHandler struct {
	count     *count
	markEvery int // records
}

func (*saramaHandler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim marks after the work. What is marked when it returns is committed
// at the end of the session.
func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	var unmarked *sarama.ConsumerMessage
	n := 0
	for m := range claim.Messages() {
		h.count.do(m.Value)
		unmarked = m
		if n++; n%h.markEvery == 0 {
			session.MarkMessage(m, "")
			unmarked = nil
		}
	}
	if unmarked != nil {
		session.MarkMessage(unmarked, "")
	}
	return nil
}
