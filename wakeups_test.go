package arroyo_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// The run loop sleeps until something is due. In these tests something that was
// due before stands in the way of what is due next.

// fetchedHook is called after each slice of records.
type fetchedHook func()

func (f fetchedHook) OnFetched(arroyo.Epoch, int, int) { f() }

// A run that is stopped while a full partition gets time to make room sees the
// deadline of its drain, and commits what is settled by then.
func TestStopWhileAFullPartitionMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 500)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var once sync.Once
		full := fetchedHook(func() { once.Do(func() { time.AfterFunc(5*time.Millisecond, cancel) }) })
		processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker), func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				if msgs[0].Payload.Offset == 0 {
					arroyo.LaneOf(ctx).Go(func(context.Context) error {
						time.Sleep(3 * time.Second)
						msgs[0].Ack()
						return nil
					})
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}}, nil
		}, quiet, arroyo.DrainTimeout(10*time.Second), arroyo.MaxPartitionInFlight(100), arroyo.Hooks(full))
		if err != nil {
			t.Fatal(err)
		}
		if err := processor.Run(ctx); !errors.Is(err, arroyo.ErrAbandoned) {
			t.Errorf("Run: %v, want an AbandonedError", err)
		}
		if got := broker.Committed(group, topic)[0]; got != 1 {
			t.Errorf("committed %d, want 1", got)
		}
	})
}

// So does a run that ends because a partition waits for too long for its old
// lane.
func TestDrainAfterAStuckError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		var ledger ledger
		processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker), func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			if e.Number == 1 {
				return stuck(&ledger, "7", release), nil
			}
			return hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				if msgs[0].Payload.Offset < 10 {
					arroyo.AckAll(msgs)
					return nil
				}
				<-arroyo.Draining(ctx)
				time.Sleep(3 * time.Second)
				msgs[0].Ack()
				<-ctx.Done()
				return ctx.Err()
			}}, nil
		}, quiet, arroyo.DrainTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(t.Context()) }()
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		rival := broker.Join(group, topic)
		rival.Take(1)
		broker.WaitStable(group, 2)
		rival.Leave()
		broker.WaitStable(group, 1)
		for range 50 {
			produce(broker, 2)
		}
		var stuck *arroyo.StuckError
		if err := <-ended; !errors.As(err, &stuck) || !errors.Is(err, arroyo.ErrAbandoned) {
			t.Errorf("Run: %v; want a StuckError, and what was abandoned", err)
		}
		if got := broker.Committed(group, topic)[0]; got != 11 {
			t.Errorf("committed %d, want 11", got)
		}
		close(release)
	})
}

// drainedContext ends when the channel does that it is given, and not a moment
// later: also in the middle of a turn of the run loop.
type drainedContext struct {
	context.Context
	draining *atomic.Pointer[<-chan struct{}]
}

func (c drainedContext) Err() error {
	if draining := c.draining.Load(); draining != nil {
		select {
		case <-*draining:
			return context.Canceled
		default:
		}
	}
	return nil
}

// A run that is stopped in the very turn of its loop in which everything is
// revoked ends when the work has.
func TestStopTogetherWithARevoke(t *testing.T) {
	for _, mode := range []string{"shared", "partitioned"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eager := protocols[1].opts
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				var draining atomic.Pointer[<-chan struct{}]
				pipeline := func() arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
						if m.Payload.Offset == 5 {
							begins := arroyo.Draining(ctx)
							draining.CompareAndSwap(nil, &begins)
							<-begins
							time.Sleep(2 * time.Second)
						}
						return nil
					})
				}
				consumer := newConsumer(t, broker, eager...)
				options := []arroyo.ProcessorOption{quiet, arroyo.CommitInterval(time.Hour)}
				var (
					processor *arroyo.Processor
					err       error
				)
				if mode == "shared" {
					processor, err = arroyo.NewProcessor(consumer, pipeline(), options...)
				} else {
					processor, err = arroyo.NewPartitionedProcessor(consumer, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
						return pipeline(), nil
					}, options...)
				}
				if err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- processor.Run(drainedContext{t.Context(), &draining}) }()
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				broker.ForceRebalance(group)
				<-*draining.Load()
				began := time.Now()
				if err, took := <-ended, time.Since(began); err != nil || took > 3*time.Second {
					t.Errorf("Run returned %v after %v, want nil after two seconds", err, took)
				}
			})
		})
	}
}
