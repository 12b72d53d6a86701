package arroyo_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// I10: partitions whose queues fill up again and again do not slow down one that
// is fast, however many they are.
func TestI10ManySlowPartitions(t *testing.T) {
	for _, slow := range []int{1, 10, 100} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, slow+1))
				fill := func(partition, batches, size int) {
					batch := make([]*kgo.Record, size)
					for i := range batch {
						batch[i] = &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte("0123456789")}
					}
					for range batches {
						broker.ProduceRecords(batch...)
					}
				}
				for p := range slow {
					fill(p+1, 10, 40)
				}
				fill(0, 1000, 20)
				var (
					fast  atomic.Int64
					began = time.Now()
					took  time.Duration
				)
				pauses := new(pauseCounter)
				m := startPartitioned(t, broker, func(e arroyo.Epoch) arroyo.Strategy[*kgo.Record] {
					task := time.Duration(20+e.Number%17) * time.Millisecond
					if e.Number == 0 {
						task = 200 * time.Microsecond
					}
					return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
						time.Sleep(task)
						if e.Number == 0 && fast.Add(1) == 20_000 {
							took = time.Since(began)
						}
						return nil
					})
				}, []kgo.Opt{kgo.FetchMaxPartitionBytes(1000)}, arroyo.MaxPartitionInFlight(80), arroyo.Hooks(pauses))
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if n := fast.Load(); n < 20_000 || took > 5*time.Second {
					t.Errorf("%d tasks of 200µs took %v, want 20,000 to take 4 s and at most a quarter more", n, took)
				}
				if n := pauses.n.Load(); n < int64(slow) {
					t.Errorf("partitions were full %d times: this tests nothing", n)
				}
				m.shutDown(t)
			})
		})
	}
}
