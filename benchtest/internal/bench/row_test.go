package bench_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// TestRow has a series that read half as many records as the other.
func TestRow(t *testing.T) {
	usage := func(seconds, cpu int) bench.Usage {
		return bench.Usage{
			Elapsed: time.Duration(seconds) * time.Second,
			First:   time.Second,
			CPU:     time.Duration(cpu) * time.Second,
			Allocs:  500,
		}
	}
	bare := bench.Series{Name: "bare", Records: 2000, Rounds: []bench.Usage{usage(1, 1), usage(2, 2), usage(4, 4)}}
	other := bench.Series{Name: "other", Records: 1000, Rounds: []bench.Usage{usage(2, 1), usage(5, 4), usage(4, 16)}}
	want := bench.Row{
		Name:            "other",
		Records:         1000,
		Rounds:          3,
		Baseline:        "bare",
		Throughput:      bench.Spread{Median: 250, Least: 200, Most: 500},
		CPU:             bench.Spread{Median: 4e6, Least: 1e6, Most: 16e6},
		ThroughputRatio: bench.Spread{Median: 0.25, Least: 0.2, Most: 0.5},
		CPURatio:        bench.Spread{Median: 4, Least: 2, Most: 8},
		Allocs:          bench.Spread{Median: 0.5, Least: 0.5, Most: 0.5},
		First:           bench.Spread{Median: 1, Least: 1, Most: 1},
	}
	if diff := cmp.Diff(want, other.Row(bare)); diff != "" {
		t.Errorf("the row is wrong (-want +got):\n%s", diff)
	}
}
