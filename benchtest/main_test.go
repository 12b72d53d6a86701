package benchtest

import (
	"os"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

func TestMain(m *testing.M) {
	bench.ServeIfBroker()
	os.Exit(m.Run())
}

// startBroker starts a broker in a process of its own, for as long as the
// benchmark takes.
func startBroker(tb testing.TB, l bench.Layout) bench.Source {
	tb.Helper()
	s, stop, err := bench.StartBroker(l)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// size returns one of two, the second with -short: how many records to read,
// say.
func size(all, short int) int {
	if testing.Short() {
		return short
	}
	return all
}

// compare is bench.Compare for benchmarks: the first reader is the one that the
// others are compared with.
func compare(b *testing.B, s bench.Source, rounds int, readers ...bench.Reader) {
	b.Helper()
	var all []bench.Series
	for b.Loop() { // an op is all rounds
		got, err := bench.Compare(b.Context(), s, group(b), rounds, readers...)
		if err != nil {
			b.Fatal(err)
		}
		all = appendRounds(all, got)
	}
	report(b, all)
}

func appendRounds(all, more []bench.Series) []bench.Series {
	if all == nil {
		return more
	}
	for i := range more {
		all[i].Rounds = append(all[i].Rounds, more[i].Rounds...)
	}
	return all
}

func report(b *testing.B, all []bench.Series) {
	for _, s := range all {
		b.ReportMetric(s.Throughput(), s.Name+"-records/s")
		b.ReportMetric(s.PerRecord(bench.CPUTime), s.Name+"-cpu-ns/record")
		b.ReportMetric(s.PerRecord(bench.Allocs), s.Name+"-allocs/record")
		b.ReportMetric(s.PerRecord(bench.Bytes), s.Name+"-B/record")
		b.ReportMetric(s.Median(bench.GCs), s.Name+"-GCs")
	}
	for _, s := range all[1:] {
		cpu, _, _ := s.Ratio(bench.CPUTime, all[0])
		speed, _, _ := s.Ratio(bench.Speed, all[0])
		b.ReportMetric(cpu, s.Name+"-cpu-ratio")
		b.ReportMetric(speed, s.Name+"-throughput-ratio")
	}
	b.ReportMetric(0, "ns/op")
}
