package benchtest

import (
	"os"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// ciEnv turns on the tests that measure time.
const ciEnv = "ARROYO_BENCH_CI"

// TestBudget fails if a Processor costs too much on top of a bare kgo loop.
// The bound on CPU is wide, because it has to hold on a machine that does other
// things; the one on allocations is not.
func TestBudget(t *testing.T) {
	if os.Getenv(ciEnv) != "1" {
		t.Skipf("it measures time and opens a port: set %s=1 to run it", ciEnv)
	}
	const (
		records    = 1_000_000
		rounds     = 7
		mostCPU    = 1.25 // of the bare loop's
		mostAllocs = 0.05 // a record, on top of the bare loop's
	)
	s := startBroker(t, bench.Large(records))
	all, err := bench.Compare(t.Context(), s, group(t), rounds, bench.Bare(bench.None), bench.Shared(bench.None), bench.Recycling(bench.None))
	if err != nil {
		t.Fatal(err)
	}
	bare := all[0]
	for _, s := range all[1:] {
		allocs, limit := s.PerRecord(bench.Allocs), bare.PerRecord(bench.Allocs)+mostAllocs
		cpu, _, _ := s.Ratio(bench.CPUTime, bare)
		t.Logf("%s: CPU %.3f of the bare loop's; allocations a record: %.4f", s.Name, cpu, allocs)
		if allocs > limit {
			t.Errorf("%s: %.4f allocations a record, more than %.4f: profile BenchmarkEndToEnd with -memprofile", s.Name, allocs, limit)
		}
		if cpu > mostCPU {
			t.Errorf("%s: CPU is %.3f of the bare loop's, more than %v: profile BenchmarkEndToEnd with -cpuprofile", s.Name, cpu, mostCPU)
		}
	}
}
