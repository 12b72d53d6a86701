package benchtest

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
	"github.com/arroyo-go/arroyo/strategies"
)

// BenchmarkStalled measures the live heap of a processor whose step takes
// nothing: of-bound is that part of it which is not kgo's own, divided by
// MaxInFlightBytes. kgo's own is what a client has on the heap that is not
// polled: one fetch of each broker.
func BenchmarkStalled(b *testing.B) {
	bound := size(128<<20, 32<<20)
	for _, codec := range []string{"none", "lz4", "zstd"} {
		b.Run(codec, func(b *testing.B) {
			s := startBroker(b, bench.Layout{Records: 2 * bound / 1000, Partitions: 8, ValueSize: 1000, Codec: codec, Batch: 100})
			for b.Loop() {
				base := liveHeap()
				own := unpolled(b, s) - base
				base = liveHeap()
				consumer, err := arroyo.NewConsumer(group(b), []string{bench.Topic}, arroyo.ClientOptions(s.Options()...))
				if err != nil {
					b.Fatal(err)
				}
				stalled := make(chan struct{})
				p, err := arroyo.NewProcessor(consumer, strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
					<-ctx.Done()
					return ctx.Err()
				}), arroyo.Logger(slog.New(slog.DiscardHandler)), arroyo.MaxInFlight(1<<30), arroyo.MaxInFlightBytes(int64(bound)), arroyo.DrainTimeout(time.Second))
				if err != nil {
					b.Fatal(errors.Join(err, consumer.Close()))
				}
				ctx, cancel := context.WithCancel(b.Context())
				go func() {
					defer close(stalled)
					p.Run(ctx) // abandoned, as it has to be
				}()
				last := -1
				for st := p.Status(); st.InFlight == 0 || st.InFlight != last; st = p.Status() {
					last = st.InFlight
					time.Sleep(time.Second)
				}
				held := liveHeap() - base - own
				b.ReportMetric(float64(held)/float64(bound), "of-bound")
				b.ReportMetric(float64(p.Status().InFlightBytes)/float64(bound), "counted-of-bound")
				b.ReportMetric(float64(own)/(1<<20), "kgo-MiB")
				cancel()
				<-stalled
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// unpolled returns the live heap while a bare client has fetched what it does
// before it is polled.
func unpolled(b *testing.B, s bench.Source) int64 {
	client, err := kgo.NewClient(append(s.Options(), kgo.ConsumerGroup(group(b)), kgo.ConsumeTopics(bench.Topic))...)
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	for last := int64(-1); last <= 0 || client.BufferedFetchRecords() != last; {
		last = client.BufferedFetchRecords()
		time.Sleep(time.Second)
	}
	return liveHeap()
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
