package memkafka_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker, and an ordinary client of it.
func ExampleOpen() {
	broker, err := memkafka.Open(memkafka.Topic("events", 2))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	client, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ConsumeTopics("events"))...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	broker.Produce("events", "hello")
	for record := range client.PollFetches(context.Background()).RecordsAll() {
		fmt.Printf("%s from partition %d, offset %d\n", record.Value, record.Partition, record.Offset)
	}
	// Output: hello from partition 0, offset 0
}

// In a test, the broker closes itself. Inside a bubble, the 45 seconds that a session takes to time out are virtual.
func ExampleNew() {
	_ = func(t *testing.T) { // func TestTakeover(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic("events", 4))
			rival := broker.Join("ingest", "events")
			broker.WaitStable("ingest", 1)

			// What you test: it joins with broker.ClientOptions(), and Start stops it when the test ends.
			memkafka.Start(t, func(ctx context.Context) error { return ingest(ctx, broker.ClientOptions()...) })
			broker.WaitStable("ingest", 2)

			begin := time.Now()
			rival.Die()
			broker.WaitStable("ingest", 1)
			t.Logf("took over after %v", time.Since(begin))

			broker.Produce("events", "a", "b", "c")
			broker.WaitCommitted("ingest", "events", 3)
		})
	}
}

func ExampleBroker_Produce() {
	broker, err := memkafka.Open(memkafka.Topic("events", 2))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a", "b", "c")
	broker.Produce("events", "d")
	for _, r := range broker.Records("events") {
		fmt.Printf("partition %d, offset %d: %s\n", r.Partition, r.Offset, r.Value)
	}
	// Output:
	// partition 0, offset 0: a
	// partition 0, offset 1: c
	// partition 1, offset 0: b
	// partition 1, offset 1: d
}

func ExampleBroker_ProduceRecords() {
	broker, err := memkafka.Open(memkafka.Topic("events", 2))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.ProduceRecords(&kgo.Record{
		Topic:     "events",
		Partition: 1,
		Key:       []byte("user-7"),
		Value:     nil, // null: a tombstone
		Headers:   []kgo.RecordHeader{{Key: "source", Value: []byte("test")}},
		Timestamp: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
	})
	for _, r := range broker.Records("events") {
		fmt.Printf("%s: null %t, %s=%s, %s\n", r.Key, r.Value == nil, r.Headers[0].Key, r.Headers[0].Value,
			r.Timestamp.UTC().Format(time.DateTime))
	}
	// Output: user-7: null true, source=test, 2024-01-02 03:04:05
}

func ExampleBroker_Join() {
	broker, err := memkafka.Open(memkafka.Topic("events", 4))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	eager := kgo.Balancers(kgo.RangeBalancer())
	a, b := broker.Join("ingest", "events", eager), broker.Join("ingest", "events", eager)
	broker.WaitStable("ingest", 2)
	all := append(a.Assigned(), b.Assigned()...)
	slices.Sort(all)
	fmt.Println(len(a.Assigned()), "and", len(b.Assigned()), "of", all)
	// Output: 2 and 2 of [0 1 2 3]
}

// ingest stands for the consumer under test.
func ingest(ctx context.Context, opts ...kgo.Opt) error {
	client, err := kgo.NewClient(append(opts, kgo.ConsumerGroup("ingest"), kgo.ConsumeTopics("events"), kgo.DisableAutoCommit())...)
	if err != nil {
		return err
	}
	defer client.Close()
	return consume(client)(ctx)
}
