package arroyo_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A function that still makes a pipeline when its partition is given up sees
// its context end, and is not waited for until the deadline.
func TestPipelineFunctionHonoursItsContext(t *testing.T) {
	for _, how := range []string{"revoked", "stopped"} {
		t.Run(how, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, opts...), func(ctx context.Context, _ arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
					<-ctx.Done()
					return nil, ctx.Err()
				}, quiet)
				if err != nil {
					t.Fatal(err)
				}
				stop := memkafka.Start(t, processor.Run)
				broker.WaitStable(group, 1)
				if how == "revoked" {
					broker.Join(group, topic, opts...)
					began := time.Now()
					broker.WaitStable(group, 2)
					if took := time.Since(began); took > 12*time.Second { // two heartbeats of KIP-848, and time to spare
						t.Errorf("the rival waited for %v", took)
					}
				}
				began := time.Now()
				if err, took := stop(), time.Since(began); err != nil || took > time.Second {
					t.Errorf("Run returned %v after %v, want nil at once", err, took)
				}
				if got := broker.Committed(group, topic); got[0]+got[1] != 0 {
					t.Errorf("committed %v", got)
				}
			})
		})
	}
}

// A pipeline that was made in spite of an ended context is closed.
func TestPipelineThatIsMadeTooLateIsClosed(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		var made, closed atomic.Int32
		processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, opts...), func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			time.Sleep(5 * time.Second)
			made.Add(1)
			return closeCounter{noop(), &closed}, nil
		}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		stop := memkafka.Start(t, processor.Run)
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		began := time.Now()
		if err, took := stop(), time.Since(began); err != nil || took > 5*time.Second {
			t.Errorf("Run returned %v after %v, want nil after four seconds", err, took)
		}
		if made.Load() != 2 || closed.Load() != 2 {
			t.Errorf("%d pipelines were made and %d closed, want two", made.Load(), closed.Load())
		}
	})
}

// When the old lane of a partition ends while the partition is being given up
// again, no pipeline is made for it.
func TestOldLaneEndsWhileItsPartitionIsGivenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eager := protocols[1].opts
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		var (
			ledger  ledger
			release = make(chan struct{})
			busy    = make(chan struct{})
			made    atomic.Int32
		)
		m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
			if e.Number == 1 {
				made.Add(1)
				return stuck(&ledger, "7", release)
			}
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				if m.Payload.Offset >= 10 {
					<-busy
				}
				ledger.add("m", m.Payload)
				return nil
			})
		}, eager, arroyo.DrainTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		rival := broker.Join(group, topic, eager...)
		broker.WaitStable(group, 2)
		rival.Leave()
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		if s := m.Status().Partitions[1]; s.State != arroyo.PartitionWaiting {
			t.Fatalf("partition 1 is %q, want it to be waiting", s.State)
		}
		produce(broker, 20)
		time.Sleep(time.Second)
		broker.ForceRebalance(group)
		time.Sleep(4 * time.Second)
		if s := m.Status().Partitions[1]; s.State != arroyo.PartitionDraining {
			t.Fatalf("partition 1 is %q, want it to be draining", s.State)
		}
		close(release)
		time.Sleep(time.Second)
		if n := made.Load(); n != 1 {
			t.Errorf("%d pipelines were made for partition 1 by the time that it is given up, want the first one", n)
		}
		close(busy)
		broker.WaitCaughtUp(group, topic)
		m.shutDown(t)
		ledger.expectAll(t, broker, 10)
	})
}
