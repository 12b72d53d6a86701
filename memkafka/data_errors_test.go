package memkafka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

var badData = map[string]struct {
	do   func(*memkafka.Broker)
	want string
}{
	"ProduceJSON topic":     {func(b *memkafka.Broker) { b.ProduceJSON("evnts", 1) }, `topic "evnts" does not exist`},
	"ProduceJSON value":     {func(b *memkafka.Broker) { b.ProduceJSON("events", 1, make(chan int)) }, `topic "events": value 1: json: unsupported type`},
	"AddPartitions topic":   {func(b *memkafka.Broker) { b.AddPartitions("evnts", 3) }, `topic "evnts" does not exist`},
	"AddPartitions none":    {func(b *memkafka.Broker) { b.AddPartitions("events", 2) }, `it has 2 partitions: give a total of 3 to 100000`},
	"AddPartitions many":    {func(b *memkafka.Broker) { b.AddPartitions("events", 100_001) }, `give a total of 3 to 100000`},
	"DeleteTopic":           {func(b *memkafka.Broker) { b.DeleteTopic("evnts") }, `topic "evnts" does not exist`},
	"Bounds topic":          {func(b *memkafka.Broker) { b.Bounds("evnts", 0) }, `topic "evnts" does not exist`},
	"Bounds partition":      {func(b *memkafka.Broker) { b.Bounds("events", 2) }, `no partition 2, only 0 to 1`},
	"Bounds negative":       {func(b *memkafka.Broker) { b.Bounds("events", -1) }, `no partition -1`},
	"End":                   {func(b *memkafka.Broker) { b.End("evnts") }, `topic "evnts" does not exist`},
	"ExpireRecords topic":   {func(b *memkafka.Broker) { b.ExpireRecords("evnts", 0, 0) }, `topic "evnts" does not exist`},
	"ExpireRecords behind":  {func(b *memkafka.Broker) { b.ExpireRecords("events", 0, 1) }, `partition 0 goes from offset 0 to 0, and 1 is outside`},
	"ExpireRecords minus 1": {func(b *memkafka.Broker) { b.ExpireRecords("events", 0, -1) }, `-1 is outside`},
	"Skip topic":            {func(b *memkafka.Broker) { b.Skip("evnts", 0, 1) }, `topic "evnts" does not exist`},
	"Skip partition":        {func(b *memkafka.Broker) { b.Skip("events", 7, 1) }, `no partition 7`},
	"Skip backwards":        {func(b *memkafka.Broker) { b.Skip("events", 0, -1) }, `-1 offsets: give 0 to 1000000`},
	"Compact topic":         {func(b *memkafka.Broker) { b.Compact("evnts") }, `topic "evnts" does not exist`},
	"Compact keyless": {func(b *memkafka.Broker) {
		b.CreateTopic("keyless", 1)
		defer b.DeleteTopic("keyless")
		b.Produce("keyless", "a")
		b.Compact("keyless")
	}, `the record at offset 0 of partition 0 has no key`},
	"ProduceTransaction topic": {func(b *memkafka.Broker) { b.ProduceTransaction("evnts", "a") }, `topic "evnts" does not exist`},
	"ProduceAborted topic":     {func(b *memkafka.Broker) { b.ProduceAborted("evnts", "a") }, `topic "evnts" does not exist`},
	"Transaction topic":        {func(b *memkafka.Broker) { b.BeginTransaction().Produce("evnts", "a") }, `topic "evnts" does not exist`},
	"Transaction partition": {func(b *memkafka.Broker) {
		b.BeginTransaction().ProduceRecords(&kgo.Record{Topic: "events", Partition: 9})
	}, `no partition 9`},
	"Transaction ended": {func(b *memkafka.Broker) {
		tx := b.BeginTransaction()
		tx.Commit()
		tx.Produce("events", "a")
	}, `committed or aborted already`},
	"Transaction ended twice": {func(b *memkafka.Broker) {
		tx := b.BeginTransaction()
		tx.Abort()
		tx.Commit()
	}, `committed or aborted already`},
	"Follow topic":       {func(b *memkafka.Broker) { b.Follow(context.Background(), "evnts") }, `topic "evnts" does not exist`},
	"WaitCaughtUp topic": {func(b *memkafka.Broker) { b.WaitCaughtUp("g", "evnts") }, `topic "evnts" does not exist`},
}

func TestFailedDataOperationsEndTheTest(t *testing.T) {
	for name, test := range badData {
		t.Run(name, func(t *testing.T) {
			got := runFake(t, func(t testing.TB) {
				test.do(memkafka.New(t, memkafka.Topic("events", 2)))
				t.Errorf("went on")
			})
			mustContain(t, got, "memkafka: ", test.want)
			if strings.Contains(got, "went on") {
				t.Error("the test went on")
			}
		})
	}
}

func TestFailedDataOperationsPanicWithoutATest(t *testing.T) {
	broker := open(t, memkafka.Topic("events", 2))
	for name, test := range badData {
		t.Run(name, func(t *testing.T) {
			err := panicOf(func() { test.do(broker) })
			if err == nil {
				t.Fatal("no panic")
			}
			mustContain(t, err.Error(), "memkafka: ", test.want)
		})
	}
	if got := broker.End("events"); got[0] != 0 || got[1] != 0 {
		t.Errorf("failed operations left something: the ends are %v", got)
	}
}

func TestDataOperationsAfterClose(t *testing.T) {
	broker := open(t, memkafka.Topic("events", 2))
	tx := broker.BeginTransaction()
	tx.Produce("events", "a")
	follow := broker.Follow(t.Context(), "events")
	broker.Close()
	for range follow {
		t.Error("a record of a closed broker")
	}
	for name, do := range map[string]func(){
		"ProduceJSON":        func() { broker.ProduceJSON("events", 1) },
		"AddPartitions":      func() { broker.AddPartitions("events", 3) },
		"DeleteTopic":        func() { broker.DeleteTopic("events") },
		"Bounds":             func() { broker.Bounds("events", 0) },
		"End":                func() { broker.End("events") },
		"ExpireRecords":      func() { broker.ExpireRecords("events", 0, 0) },
		"Skip":               func() { broker.Skip("events", 0, 1) },
		"Compact":            func() { broker.Compact("events") },
		"ProduceTransaction": func() { broker.ProduceTransaction("events", "a") },
		"ProduceAborted":     func() { broker.ProduceAborted("events", "a") },
		"BeginTransaction":   func() { broker.BeginTransaction() },
		"Transaction":        func() { tx.Produce("events", "b") },
		"Commit":             func() { tx.Commit() },
		"Follow":             func() { broker.Follow(t.Context(), "events") },
		"WaitCaughtUp":       func() { broker.WaitCaughtUp("g", "events") },
	} {
		if err := panicOf(do); err == nil {
			t.Errorf("%s worked", name)
		} else {
			mustContain(t, err.Error(), "the broker is closed")
		}
	}
}
