package strategies_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
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
	host := broker.Host()
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(host.ClientOptions()...))
	if err != nil {
		t.Fatal(err)
	}
	opts = append([]arroyo.ProcessorOption{arroyo.Logger(slog.New(slog.DiscardHandler))}, opts...)
	processor, err := arroyo.NewProcessor(consumer, pipeline, opts...)
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

// putKeyed produces values with keys, written "key=value", to one partition.
func (b *bench) putKeyed(partition int32, pairs ...string) {
	records := make([]*kgo.Record, len(pairs))
	for i, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		records[i] = &kgo.Record{Topic: "events", Partition: partition, Key: []byte(key), Value: []byte(value)}
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

func isInvalid(err error) bool {
	var invalid *arroyo.InvalidError
	return errors.As(err, &invalid)
}

func value(m arroyo.Message[*kgo.Record]) string { return string(m.Payload.Value) }
