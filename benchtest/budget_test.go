package benchtest

import (
	"os"
	"testing"
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
	s := startBroker(t, large(records))
	c := compare(t, s, "budget", rounds, forEach)
	bare, arroyo := c.perRecord(c.bare, allocs), c.perRecord(c.arroyo, allocs)
	ratio := c.ratio(cpu)
	t.Logf("CPU: %.3f of the bare loop's; allocations a record: %.4f, bare %.4f", ratio, arroyo, bare)
	if arroyo > bare+mostAllocs {
		t.Errorf("%.4f allocations a record, the bare loop %.4f: profile BenchmarkEndToEnd with -memprofile", arroyo, bare)
	}
	if ratio > mostCPU {
		t.Errorf("CPU is %.3f of the bare loop's, more than %v: profile BenchmarkEndToEnd with -cpuprofile", ratio, mostCPU)
	}
}
