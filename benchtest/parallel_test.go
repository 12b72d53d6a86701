package benchtest

import (
	"runtime"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// BenchmarkParallel compares RunTaskInParallel with a pool of goroutines that
// one writes by hand, for work that waits. For work that computes, to see
// whether it scales with cores, it is compared with itself on one core, and so
// is one lane, beside which kgo has the other cores for what it does.
func BenchmarkParallel(b *testing.B) {
	b.Run("Wait1ms-256", func(b *testing.B) {
		s := startBroker(b, bench.Large(size(400_000, 50_000)))
		compare(b, s, size(5, 2), bench.Goroutines(256, bench.Wait), bench.Parallel(256, bench.Wait))
	})
	b.Run("CPU1us", func(b *testing.B) {
		s := startBroker(b, bench.Large(size(1_000_000, 200_000)))
		cores := runtime.GOMAXPROCS(0)
		parallel := bench.Parallel(cores, bench.CPU)
		compare(b, s, size(5, 2), bench.OnOneCore(parallel), bench.Shared(bench.CPU), parallel)
	})
}
