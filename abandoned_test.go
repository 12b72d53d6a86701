package arroyo_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// Run tells of work that is left also if it is a revoke's drain, which began
// before the run was stopped, that is past its deadline.
func TestRevokeThenStopLeavesWork(t *testing.T) {
	for _, how := range []string{"stopped", "abandoned"} {
		t.Run(how, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				var once sync.Once
				draining := make(chan struct{})
				m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
						if m.Payload.Offset == 5 {
							<-arroyo.Draining(arroyo.LaneOf(ctx).Context())
							once.Do(func() { close(draining) })
							<-ctx.Done()
							return ctx.Err()
						}
						return nil
					})
				}, opts, arroyo.DrainTimeout(10*time.Second))
				broker.WaitStable(group, 1)
				broker.Join(group, topic, opts...)
				<-draining
				time.Sleep(time.Second)
				if how == "abandoned" {
					m.Abandon()
				}
				var left *arroyo.AbandonedError
				if err := m.stop(); !errors.As(err, &left) || left.Records == 0 || int64(left.Records) != m.Status().Abandoned {
					t.Errorf("Run: %v; Status says that %d were abandoned", err, m.Status().Abandoned)
				}
			})
		})
	}
}

// Records that are left at a deadline are counted once, also if the commit
// after it gets no answer until the run ends.
func TestAbandonedIsCountedOnce(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		var ledger ledger
		m := start(t, broker, stuckPipeline(&ledger, "7", release), opts, arroyo.DrainTimeout(10*time.Second), arroyo.CommitInterval(time.Hour))
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		broker.Swallow(kmsg.OffsetCommit)
		broker.Join(group, topic, opts...)
		time.Sleep(16 * time.Second) // past the revoke's deadline
		var left *arroyo.AbandonedError
		if err := m.stop(); !errors.As(err, &left) {
			t.Fatalf("Run: %v, want an AbandonedError", err)
		}
		if n := m.Status().Abandoned; n != int64(left.Records) || n == 0 || n > 14 {
			t.Errorf("Status says %d were abandoned, Run's error %d; want both to say what is stuck and what was submitted with it", n, left.Records)
		}
		close(release)
	})
}

// A user who drains the consumer of a run in too short a time is told of what
// was not done, or not committed.
func TestUserDrainsInTooShortATime(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 200)
		var ledger ledger
		for name, timeout := range map[string]time.Duration{"none": 0, "a second": time.Second} {
			consumer := newConsumer(t, broker, opts...)
			processor, err := arroyo.NewProcessor(consumer, strategies.ForEachBatch(10, time.Hour, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
				select {
				case <-time.After(3 * time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
				for _, row := range rows {
					ledger.add("m", row.Payload)
				}
				return nil
			}), quiet, arroyo.CommitInterval(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			stop := memkafka.Start(t, processor.Run)
			broker.WaitStable(group, 1)
			time.Sleep(10 * time.Second)
			consumer.Drain(timeout)
			time.Sleep(10 * time.Second)
			if err := stop(); !errors.Is(err, arroyo.ErrAbandoned) {
				t.Errorf("%s: Run: %v, want an AbandonedError", name, err)
			}
		}
		last := start(t, broker, ledger.pipeline("last"), opts)
		broker.WaitCommitted(group, topic, 200)
		last.shutDown(t)
		ledger.expectAll(t, broker, 200)
	})
}
