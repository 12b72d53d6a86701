package benchtest

import (
	"runtime"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkParallel compares RunTaskInParallel with a pool of goroutines that
// one writes by hand, for work that waits; and for work that computes with one
// lane, to see whether it scales with cores.
func BenchmarkParallel(b *testing.B) {
	b.Run("Wait1ms-256", func(b *testing.B) {
		s := startBroker(b, bench.Large(size(400_000, 50_000)))
		compare(b, s, size(5, 2), bench.Goroutines(256, bench.Wait), bench.Parallel(256, bench.Wait))
	})
	b.Run("CPU1us", func(b *testing.B) {
		s := startBroker(b, bench.Large(size(1_000_000, 200_000)))
		compare(b, s, size(5, 2), bench.Shared(bench.CPU), bench.Parallel(runtime.GOMAXPROCS(0), bench.CPU))
	})
}
