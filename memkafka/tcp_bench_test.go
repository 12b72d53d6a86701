package memkafka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkConsumeTCP reads 100-byte values by way of [memkafka.Broker.Addr], as a client in another process would.
func BenchmarkConsumeTCP(b *testing.B) {
	const stored = 1_000_000
	broker := memkafka.New(b, memkafka.Topic("events", 4))
	values := make([]string, 10_000)
	for i := range values {
		values[i] = strings.Repeat("x", 100)
	}
	for range stored / len(values) {
		broker.Produce("events", values...)
	}
	addr := broker.Addr()
	n := 0
	for b.Loop() {
		client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"))
		if err != nil {
			b.Fatal(err)
		}
		for m := 0; m < stored; {
			fetched := client.PollFetches(context.Background()).NumRecords()
			m += fetched
			n += fetched
		}
		client.Close()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
