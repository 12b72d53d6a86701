package benchtest

import (
	"runtime"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkEndToEnd compares processors with loops that one writes with kgo
// alone.
func BenchmarkEndToEnd(b *testing.B) {
	s := startBroker(b, bench.Large(size(2_000_000, 300_000)))
	rounds := size(7, 2)
	for _, e := range []struct {
		name    string
		readers []bench.Reader
		ballast int // bytes of live heap that the program has besides
	}{
		{"ForEach", []bench.Reader{bench.Bare(bench.None), bench.Shared(bench.None)}, 0},
		{"ForEachBatch", []bench.Reader{bench.Bare(bench.None), bench.Batching()}, 0},
		{"Partitioned", []bench.Reader{bench.Bare(bench.None), bench.Partitioned(bench.None)}, 0},
		{"DeadLetters", []bench.Reader{bench.Bare(bench.None), bench.DeadLettering()}, 0},
		{"Recycle", []bench.Reader{bench.Bare(bench.None), bench.Pooled(bench.None), bench.Recycling(bench.None), bench.RecyclingOneStep(bench.None)}, 0},
		{"ForEach-Ballast", []bench.Reader{bench.Bare(bench.None), bench.Shared(bench.None)}, 256 << 20},
	} {
		b.Run(e.name, func(b *testing.B) {
			live := make([]byte, e.ballast)
			compare(b, s, rounds, e.readers...)
			runtime.KeepAlive(live)
		})
	}
}

// BenchmarkProduce compares a Produce step with a loop that produces and
// flushes before it commits.
func BenchmarkProduce(b *testing.B) {
	s := startBroker(b, bench.Large(size(500_000, 100_000)))
	compare(b, s, size(5, 2), bench.Forwarding(), bench.Producing())
}

// BenchmarkMatrix is EndToEnd/ForEach for values, codecs, partitions and work
// of all kinds; with -short for a few.
func BenchmarkMatrix(b *testing.B) {
	for _, cell := range bench.Matrix() {
		if testing.Short() && !cell.Short {
			continue
		}
		b.Run(cell.String(), func(b *testing.B) {
			s := startBroker(b, cell.Layout(testing.Short()))
			compare(b, s, size(3, 1), cell.Readers()...)
		})
	}
}
