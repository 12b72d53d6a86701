package benchtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkLatency measures from when a record is produced until it is settled,
// at a share of the highest rate with which a bare loop keeps up here. Producer,
// broker and reader share the machine.
func BenchmarkLatency(b *testing.B) {
	highest, err := bench.HighestRate(b.Context(), size(3, 1))
	if err != nil {
		b.Fatal(err)
	}
	for _, percent := range []int{10, 50, 80} {
		if testing.Short() && percent != 50 {
			continue
		}
		b.Run(fmt.Sprintf("%d%%", percent), func(b *testing.B) {
			rate := highest * percent / 100
			l := bench.Layout{Records: size(5, 1) * rate, Partitions: 8, Batch: 1, Rate: rate}
			ratios := make(map[float64][]float64)
			times := make(map[string][]float64)
			for b.Loop() {
				for round := range size(5, 1) {
					var took [2]*bench.Latencies
					for i := range 2 {
						i = (i + round) % 2
						s := startBroker(b, l)
						took[i] = bench.NewLatencies(s)
						r := []func(*bench.Latencies) bench.Reader{bench.BareLatency, bench.ArroyoLatency}[i](took[i])
						if _, err := r.Run(b.Context(), s, group(b)); err != nil {
							b.Fatal(err)
						}
					}
					for _, q := range []float64{0.5, 0.99, 0.999} {
						bare, arroyo := took[0].Quantile(q), took[1].Quantile(q)
						ratios[q] = append(ratios[q], float64(arroyo)/float64(bare))
						for who, t := range map[string]time.Duration{"bare": bare, "arroyo": arroyo} {
							name := fmt.Sprintf("%s-p%g-µs", who, 100*q)
							times[name] = append(times[name], float64(t.Microseconds()))
						}
					}
				}
			}
			b.ReportMetric(float64(rate), "records/s")
			for name, t := range times {
				b.ReportMetric(bench.Median(t), name)
			}
			for q, r := range ratios {
				b.ReportMetric(bench.Median(r), fmt.Sprintf("p%g-ratio", 100*q))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
