package memkafka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkConsume reads 100-byte values with a bare kgo loop: what the broker and its network can deliver at most.
func BenchmarkConsume(b *testing.B) {
	const stored = 1_000_000
	broker := memkafka.New(b, memkafka.Topic("events", 4))
	values := make([]string, 10_000)
	for i := range values {
		values[i] = strings.Repeat("x", 100)
	}
	for range stored / len(values) {
		broker.Produce("events", values...)
	}
	consume := func() (n int) {
		client, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ConsumeTopics("events"))...)
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		for n < stored {
			n += client.PollFetches(context.Background()).NumRecords()
		}
		return n
	}
	consume()
	n := 0
	for b.Loop() {
		n += consume()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

func BenchmarkProduce(b *testing.B) {
	broker := memkafka.New(b, memkafka.Topic("events", 4))
	values := make([]string, 1000)
	for i := range values {
		values[i] = strings.Repeat("x", 100)
	}
	n := 0
	for b.Loop() {
		broker.Produce("events", values...)
		n += len(values)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkNew is the price of a test.
func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		broker, err := memkafka.Open(memkafka.Topic("events", 4))
		if err != nil {
			b.Fatal(err)
		}
		broker.Produce("events", "a")
		broker.Close()
	}
}
