package memkafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestZZ(t *testing.T) {
	for i := range 300 {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		broker.Produce("events", "a", "b", "c")
		broker.ProduceAborted("events", "aborted", "aborted")
		broker.Skip("events", 0, 5)
		tx := broker.BeginTransaction()
		tx.ProduceRecords(&kgo.Record{Topic: "events", Partition: 0, Value: []byte("g")})
		before := *broker.Cluster().PartitionInfo("events", 0)
		tx.Commit()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		ctx2 := context.Background()
		found := false
		for r := range broker.Follow(ctx, "events") {
			if string(r.Value) == "g" {
				found = true
				break
			}
		}
		cancel()
		if !found {
			c := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.KeepControlRecords())
			n := 0
			for n < 10 {
				f := c.PollFetches(ctx2)
				f.EachRecord(func(r *kgo.Record) {
					if r.Partition == 0 {
						n++
						t.Logf("offset %d pid %d epoch %d ctl %t key %x val %q tx %t", r.Offset, r.ProducerID, r.ProducerEpoch, r.Attrs.IsControl(), r.Key, r.Value, r.Attrs.IsTransactional())
					}
				})
			}
			t.Fatalf("%d: before %+v now %+v records %v", i, before, *broker.Cluster().PartitionInfo("events", 0), values(broker.Records("events")))
		}
		broker.Close()
	}
}
