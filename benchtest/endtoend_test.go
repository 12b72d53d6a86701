package benchtest

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkEndToEnd compares a Processor with a bare kgo loop. One op is all
// rounds of the comparison.
func BenchmarkEndToEnd(b *testing.B) {
	const (
		records = 2_000_000
		rounds  = 7
		ballast = 256 << 20
	)
	s := startBroker(b, large(records))
	for _, e := range []struct {
		name    string
		last    ending
		ballast int // bytes of live heap that the program has besides
	}{
		{"ForEach", forEach, 0},
		{"ForEachBatch1000", forEachBatch, 0},
		{"ForEach-Ballast", forEach, ballast},
		{"ForEachBatch1000-Ballast", forEachBatch, ballast},
	} {
		b.Run(e.name, func(b *testing.B) {
			live := make([]byte, e.ballast)
			var c comparison
			for op := 0; b.Loop(); op++ {
				c.add(compare(b, s, fmt.Sprintf("%s-%d", e.name, op), rounds, e.last))
			}
			runtime.KeepAlive(live)
			report(b, c)
		})
	}
}

func report(b *testing.B, c comparison) {
	for _, who := range []struct {
		name   string
		rounds []usage
	}{
		{"bare", c.bare},
		{"arroyo", c.arroyo},
	} {
		b.ReportMetric(c.records*median(who.rounds, speed), who.name+"-records/s")
		b.ReportMetric(c.perRecord(who.rounds, cpu), who.name+"-cpu-ns/record")
		b.ReportMetric(c.perRecord(who.rounds, allocs), who.name+"-allocs/record")
		b.ReportMetric(c.perRecord(who.rounds, bytes), who.name+"-B/record")
		b.ReportMetric(median(who.rounds, gcs), who.name+"-GCs")
	}
	b.ReportMetric(c.ratio(cpu), "cpu-ratio")
	b.ReportMetric(c.ratio(speed), "throughput-ratio")
	b.ReportMetric(0, "ns/op") // an op is all rounds
}
