package arroyo_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// Where partitions are many each is fetched seldom, and nothing may be committed
// for long. What is settled does not stay in memory until then.
func TestSettledRecordsAreLetGoOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions, each = 200, 300
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		for p := range int32(partitions) {
			records := make([]*kgo.Record, each)
			for i := range records {
				records[i] = &kgo.Record{Topic: topic, Partition: p, Value: []byte("v")}
			}
			broker.ProduceRecords(records...)
		}
		seen := make([]weak.Pointer[kgo.Record], 0, partitions*each)
		m := startMember(t, broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			seen = append(seen, weak.Make(m.Payload))
			return nil
		}), nil, arroyo.CommitInterval(time.Hour))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(seen) != partitions*each {
			t.Fatalf("%d records were processed, want %d", len(seen), partitions*each)
		}
		broker.Produce(topic, "v") // whatever comes next, of any partition
		time.Sleep(10 * time.Second)
		synctest.Wait()
		runtime.GC()
		alive := 0
		for _, r := range seen {
			if r.Value() != nil {
				alive++
			}
		}
		if alive > len(seen)/2 {
			t.Errorf("%d of %d settled records are still in memory", alive, len(seen))
		}
		m.shutDown(t)
	})
}
