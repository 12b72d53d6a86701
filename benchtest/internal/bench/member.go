package bench

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Member is a member of a group that reads until its context ends, and then
// leaves it.
type Member struct {
	Name string
	Run  func(ctx context.Context, s Source, group string, protocol []kgo.Opt, seen func()) error
}

// BareMember is a loop written with kgo: it commits each second and when it
// has to give partitions up.
func BareMember() Member {
	return Member{"bare", func(ctx context.Context, s Source, group string, protocol []kgo.Opt, seen func()) error {
		opts := append(bareLoop{}.options(s, group), protocol...)
		opts = append(opts, kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, _ map[string][]int32) {
			c.CommitUncommittedOffsets(ctx)
		}))
		client, err := kgo.NewClient(opts...)
		if err != nil {
			return err
		}
		defer client.Close()
		committed := time.Now()
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil && ctx.Err() == nil {
				return err
			}
			fetches.EachRecord(func(*kgo.Record) { seen() })
			if now := time.Now(); now.Sub(committed) >= time.Second {
				committed = now
				if err := client.CommitUncommittedOffsets(context.WithoutCancel(ctx)); err != nil {
					return err
				}
			}
		}
		return client.CommitUncommittedOffsets(context.WithoutCancel(ctx))
	}}
}

// ArroyoMember is a Processor.
func ArroyoMember() Member {
	return Member{"arroyo", func(ctx context.Context, s Source, group string, protocol []kgo.Opt, seen func()) error {
		consumer, err := arroyo.NewConsumer(group, []string{Topic}, arroyo.ClientOptions(s.Options()...), arroyo.ClientOptions(protocol...))
		if err != nil {
			return err
		}
		p, err := arroyo.NewProcessor(consumer, strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
			seen()
			return nil
		}), arroyo.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return errors.Join(err, consumer.Close())
		}
		return p.Run(ctx)
	}}
}

// Protocols are the three ways in which a group can rebalance.
func Protocols() map[string][]kgo.Opt {
	return map[string][]kgo.Opt{
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"kip848":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
	}
}
