package strategies_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// bench is a rig of which more can be asked.
type bench struct {
	rig
	processor *arroyo.Processor
	host      *memkafka.Host // which the consumer runs on
	t         *testing.T
}

func newBench(t *testing.T, partitions int, pipeline arroyo.Strategy[*kgo.Record], opts ...arroyo.ProcessorOption) *bench {
	t.Helper()
	broker := memkafka.New(t, memkafka.Topic("events", partitions))
	return benchOn(t, broker, pipeline, opts...)
}

// benchOn starts a consumer on a broker that there is already.
func benchOn(t *testing.T, broker *memkafka.Broker, pipeline arroyo.Strategy[*kgo.Record], opts ...arroyo.ProcessorOption) *bench {
	t.Helper()
	return startBench(t, broker, func(c *arroyo.Consumer, quiet arroyo.ProcessorOption) (*arroyo.Processor, error) {
		return arroyo.NewProcessor(c, pipeline, append(opts, quiet)...)
	})
}

// newPartitionedBench is newBench with a pipeline for each partition.
func newPartitionedBench(t *testing.T, partitions int, build func() arroyo.Strategy[*kgo.Record]) *bench {
	t.Helper()
	broker := memkafka.New(t, memkafka.Topic("events", partitions))
	return startBench(t, broker, func(c *arroyo.Consumer, quiet arroyo.ProcessorOption) (*arroyo.Processor, error) {
		return arroyo.NewPartitionedProcessor(c, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return build(), nil
		}, quiet)
	})
}

func startBench(t *testing.T, broker *memkafka.Broker, build func(*arroyo.Consumer, arroyo.ProcessorOption) (*arroyo.Processor, error)) *bench {
	t.Helper()
	host := broker.Host()
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(host.ClientOptions()...))
	if err != nil {
		t.Fatal(err)
	}
	processor, err := build(consumer, arroyo.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	members := broker.Members("g")
	b := &bench{rig{broker, memkafka.Start(t, processor.Run)}, processor, host, t}
	broker.WaitStable("g", members+1)
	return b
}

// joins adds a member that takes its share of the partitions, and waits until
// it has them.
func (b *bench) joins() *memkafka.Rival {
	rival := b.broker.Join("g", "events")
	b.broker.WaitStable("g", 2)
	return rival
}

// put produces a value to one partition.
func (b *bench) put(partition int32, values ...string) {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: "events", Partition: partition, Value: []byte(v)}
	}
	b.broker.ProduceRecords(records...)
}

// expectCommitted checks where the group would go on.
func (b *bench) expectCommitted(partition int32, want int64) {
	b.t.Helper()
	if got := b.broker.Committed("g", "events")[partition]; got != want {
		b.t.Errorf("partition %d: committed %d, want %d", partition, got, want)
	}
}

// stopsWithin stops the consumer and expects a clean drain that takes no
// longer than d.
func (b *bench) stopsWithin(d time.Duration) {
	b.t.Helper()
	began := time.Now()
	if err := b.stop(); err != nil {
		b.t.Errorf("Run: %v", err)
	}
	if took := time.Since(began); took > d {
		b.t.Errorf("the shutdown took %v, more than %v", took, d)
	}
}

// count returns one of the counts that Status shows of a step.
func (b *bench) count(step, what string) int64 {
	for _, s := range b.processor.Status().Steps {
		if s.Name == step {
			return s.Counts[what]
		}
	}
	return 0
}

// pass waits in virtual time, or until ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func value(m arroyo.Message[*kgo.Record]) string { return string(m.Payload.Value) }
