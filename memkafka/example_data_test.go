package memkafka_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// show prints what a consumer with kgo.ReadCommitted would get.
func show(broker *memkafka.Broker, topic string) {
	for _, r := range broker.Records(topic) {
		fmt.Printf("partition %d, offset %d: %s\n", r.Partition, r.Offset, r.Value)
	}
}

func ExampleBroker_ProduceJSON() {
	broker, err := memkafka.Open(memkafka.Topic("orders", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	type order struct {
		ID     int      `json:"id"`
		Amount float64  `json:"amount"`
		Tags   []string `json:"tags,omitempty"`
	}
	broker.ProduceJSON("orders", order{ID: 1, Amount: 9.5}, order{ID: 2, Tags: []string{"gift"}}, "not an order")
	show(broker, "orders")
	// Output:
	// partition 0, offset 0: {"id":1,"amount":9.5}
	// partition 0, offset 1: {"id":2,"amount":0,"tags":["gift"]}
	// partition 0, offset 2: "not an order"
}

func ExampleBroker_AddPartitions() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a", "b")
	broker.AddPartitions("events", 3)
	broker.Produce("events", "c", "d", "e")
	show(broker, "events")
	// Output:
	// partition 0, offset 0: a
	// partition 0, offset 1: b
	// partition 0, offset 2: c
	// partition 1, offset 0: d
	// partition 2, offset 0: e
}

// A topic that is created anew is another topic, and groups start over.
func ExampleBroker_DeleteTopic() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a", "b")
	broker.DeleteTopic("events")
	broker.CreateTopic("events", 2)
	broker.Produce("events", "c", "d")
	show(broker, "events")
	// Output:
	// partition 0, offset 0: c
	// partition 1, offset 0: d
}

func ExampleBroker_Skip() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a")
	broker.Skip("events", 0, 10)
	broker.Produce("events", "b")
	show(broker, "events")
	// Output:
	// partition 0, offset 0: a
	// partition 0, offset 11: b
}

func ExampleBroker_Compact() {
	broker, err := memkafka.Open(memkafka.Topic("users", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	put := func(key, value string) {
		broker.ProduceRecords(&kgo.Record{Topic: "users", Key: []byte(key), Value: []byte(value)})
	}
	put("anna", "anna in Rome")
	put("ben", "ben in Kyiv")
	put("anna", "anna in Oslo")
	put("cleo", "cleo in Lima")
	broker.Compact("users")
	show(broker, "users")
	// Output:
	// partition 0, offset 1: ben in Kyiv
	// partition 0, offset 2: anna in Oslo
	// partition 0, offset 3: cleo in Lima
}

// Control records and aborted ones have offsets too, so the log ends where no consumer gets.
func ExampleBroker_ProduceAborted() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.ProduceTransaction("events", "a", "b") // and a marker at offset 2
	broker.ProduceAborted("events", "c", "d")     // and a marker at offset 5
	show(broker, "events")
	_, end := broker.Bounds("events", 0)
	fmt.Println("the end is", end)
	// Output:
	// partition 0, offset 0: a
	// partition 0, offset 1: b
	// the end is 6
}

// A transaction that is open holds up what is behind it.
func ExampleBroker_BeginTransaction() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	tx := broker.BeginTransaction()
	tx.Produce("events", "a")
	broker.Produce("events", "b")
	fmt.Println(len(broker.Records("events")), "records while it is open")
	tx.Commit()
	show(broker, "events")
	// Output:
	// 0 records while it is open
	// partition 0, offset 0: a
	// partition 0, offset 1: b
}

func ExampleBroker_ExpireRecords() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a", "b", "c")
	broker.ExpireRecords("events", 0, 2)
	fmt.Println(broker.Bounds("events", 0))
	show(broker, "events")
	// Output:
	// 2 3
	// partition 0, offset 2: c
}

// Wait for what the code under test produces.
func ExampleBroker_Follow() {
	broker, err := memkafka.Open(memkafka.Topic("results", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	go broker.Produce("results", "a", "b", "c") // what you test does that

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for record := range broker.Follow(ctx, "results") {
		fmt.Printf("%s\n", record.Value)
		if string(record.Value) == "c" {
			break
		}
	}
	// Output:
	// a
	// b
	// c
}

func ExampleBroker_WaitCaughtUp() {
	broker, err := memkafka.Open(memkafka.Topic("events", 2))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	broker.Produce("events", "a", "b", "c")
	broker.ProduceAborted("events", "d")

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { // what you test
		done <- ingest(ctx, append(broker.ClientOptions(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	}()
	broker.WaitCaughtUp("ingest", "events")
	fmt.Println("committed:", broker.Committed("ingest", "events"))
	fmt.Println("the ends: ", broker.End("events"))
	cancel()
	<-done
	// Output:
	// committed: map[0:2 1:1]
	// the ends:  map[0:2 1:3]
}

// A client that knows nothing but an address: it could be in another process, and in another language.
func ExampleBroker_Addr() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()

	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.ConsumeTopics("events"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	broker.Produce("events", "hello")
	records := slices.Collect(client.PollFetches(context.Background()).RecordsAll())
	fmt.Printf("%s\n", records[0].Value)
	// Output: hello
}
