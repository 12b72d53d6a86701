package benchtest

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
	"testing"
)

// comparison is two readers that took turns over one source.
type comparison struct {
	records      float64
	bare, arroyo []usage // by round
}

// compare lets the two read in turns, after one round that does not count. Who
// begins changes with the round, so that what the machine does meanwhile does
// not favour one of them. Groups are new if the prefix is.
func compare(tb testing.TB, s source, prefix string, rounds int, last ending) comparison {
	tb.Helper()
	c := comparison{records: float64(s.records)}
	for round := range rounds + 1 {
		var bare, arroyo usage
		readBoth := []func(){
			func() { bare = readLabelled(tb, s, prefix, "bare", round, readBare) },
			func() { arroyo = readLabelled(tb, s, prefix, "arroyo", round, readArroyo(last)) },
		}
		if round%2 == 1 {
			slices.Reverse(readBoth)
		}
		for _, read := range readBoth {
			read()
		}
		if round > 0 {
			c.bare = append(c.bare, bare)
			c.arroyo = append(c.arroyo, arroyo)
		}
	}
	return c
}

// readLabelled labels the CPU profile's samples of a reader's goroutines.
func readLabelled(tb testing.TB, s source, prefix, who string, round int, r reader) (u usage) {
	tb.Helper()
	pprof.Do(context.Background(), pprof.Labels("reader", who), func(context.Context) {
		u = read(tb, s, fmt.Sprintf("%s-%s-%d", prefix, who, round), r)
	})
	return u
}

func (c *comparison) add(more comparison) {
	c.records = more.records
	c.bare = append(c.bare, more.bare...)
	c.arroyo = append(c.arroyo, more.arroyo...)
}

// perRecord returns the median of a figure of the rounds, divided by the
// number of records.
func (c comparison) perRecord(rounds []usage, figure func(usage) float64) float64 {
	return median(rounds, figure) / c.records
}

// ratio returns the median over the rounds of Arroyo's figure divided by the
// bare loop's.
func (c comparison) ratio(figure func(usage) float64) float64 {
	ratios := make([]float64, len(c.bare))
	for i := range ratios {
		ratios[i] = figure(c.arroyo[i]) / figure(c.bare[i])
	}
	return median(ratios, func(r float64) float64 { return r })
}

func cpu(u usage) float64    { return float64(u.cpu.Nanoseconds()) }
func speed(u usage) float64  { return 1 / u.elapsed.Seconds() }
func allocs(u usage) float64 { return u.allocs }
func bytes(u usage) float64  { return u.bytes }
func gcs(u usage) float64    { return u.gcs }

func median[T any](rounds []T, figure func(T) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = figure(r)
	}
	slices.Sort(values)
	n := len(values)
	if n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[n/2]
}
