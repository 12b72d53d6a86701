package benchtest

import (
	"fmt"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkPartitions reads the same number of records from few and from many
// partitions: with a bare kgo loop, with one pipeline for all partitions, and
// with one for each. CatchUp reads what is there, in batches of the same size,
// joining included; Steady what comes at a rate, without.
func BenchmarkPartitions(b *testing.B) {
	readers := []bench.Reader{bench.Bare(bench.None), bench.Shared(bench.None), bench.Partitioned(bench.None)}
	for _, partitions := range []int{1, 100, 1000, 10_000} {
		if testing.Short() && partitions != 100 {
			continue
		}
		b.Run(fmt.Sprintf("CatchUp/%d", partitions), func(b *testing.B) {
			s := startBroker(b, bench.Layout{Records: size(2_000_000, 200_000), Partitions: partitions, Batch: 200})
			compare(b, s, size(3, 1), readers...)
		})
	}
	for _, partitions := range []int{1, 100, 1000, 10_000} {
		if testing.Short() && partitions != 100 {
			continue
		}
		b.Run(fmt.Sprintf("Steady/%d", partitions), func(b *testing.B) {
			l := bench.Layout{Records: size(500_000, 50_000), Partitions: partitions, Batch: 1, Rate: 50_000}
			var all []bench.Series
			for b.Loop() {
				for range size(3, 1) {
					var round []bench.Series
					for _, r := range readers {
						s := startBroker(b, l) // what came is there for the next one at once
						used, err := r.Run(b.Context(), s, group(b))
						if err != nil {
							b.Fatal(err)
						}
						round = append(round, bench.Series{Name: r.Name, Records: float64(l.Records), Rounds: []bench.Usage{used}})
					}
					all = appendRounds(all, round)
				}
			}
			report(b, all)
		})
	}
}
