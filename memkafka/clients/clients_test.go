package clients_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
)

const (
	topic      = "events"
	partitions = 3
	group      = "ingest"
	produced   = 100 // records
)

func newBroker(t *testing.T) *memkafka.Broker {
	t.Helper()
	return memkafka.New(t, memkafka.Brokers(2), memkafka.Topic(topic, partitions))
}

// skip makes partitions begin with offsets that have no record.
func skip(broker *memkafka.Broker) {
	for p := range int32(partitions) {
		broker.Skip(topic, p, int64(p))
	}
}

func value(i int) string { return fmt.Sprintf("value-%02d", i) }

// check looks at what a client left: all records are there, were read, and are committed.
func check(t *testing.T, broker *memkafka.Broker, read []string) {
	t.Helper()
	var want, stored []string
	for i := range produced {
		want = append(want, value(i))
	}
	for _, r := range broker.Records(topic) {
		stored = append(stored, string(r.Value))
	}
	slices.Sort(stored)
	if !slices.Equal(stored, want) {
		t.Errorf("the topic has %d records: %q", len(stored), stored)
	}
	slices.Sort(read)
	if !slices.Equal(read, want) {
		t.Errorf("the client read %d records: %q", len(read), read)
	}
	broker.WaitCaughtUp(group, topic)
	if committed, end := broker.Committed(group, topic), broker.End(topic); !maps.Equal(committed, end) {
		t.Errorf("committed is %v, and the ends are %v", committed, end)
	}
}
