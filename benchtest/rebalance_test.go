package benchtest

import (
	"slices"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkRebalance measures what the joining of a member costs it, until its
// first record, and the group: the longest time without a record of any member.
// Both are medians; a gap of some 100 ms is now and then the machine's, so the
// shortest gap is told as well.
func BenchmarkRebalance(b *testing.B) {
	for name, protocol := range bench.Protocols() {
		if testing.Short() && name != "cooperative" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			l := bench.Layout{Records: 2_000_000, Partitions: 8, Batch: 1, Rate: 20_000}
			first, gap := make(map[string][]float64), make(map[string][]float64)
			for b.Loop() {
				for range size(9, 1) {
					for _, m := range []bench.Member{bench.BareMember(), bench.ArroyoMember()} {
						r, err := bench.Rebalance(b.Context(), startBroker(b, l), m, group(b), protocol)
						if err != nil {
							b.Fatal(err)
						}
						first[m.Name] = append(first[m.Name], r.First.Seconds()*1000)
						gap[m.Name] = append(gap[m.Name], r.Gap.Seconds()*1000)
					}
				}
			}
			for _, m := range []string{"bare", "arroyo"} {
				b.ReportMetric(bench.Median(first[m]), m+"-first-ms")
				b.ReportMetric(bench.Median(gap[m]), m+"-gap-ms")
				b.ReportMetric(slices.Min(gap[m]), m+"-least-gap-ms")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
