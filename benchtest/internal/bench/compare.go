package bench

import (
	"context"
	"fmt"
	"runtime/pprof"
	"slices"
)

// Series is what one reader used, by round.
type Series struct {
	Name    string
	Records float64 // of a round
	Rounds  []Usage
}

// Compare lets readers read in turns, after one round that does not count. Who
// begins changes with the round, so that what the machine does meanwhile does
// not favour one of them. Groups are new if the prefix is. The CPU profile's
// samples are labelled with the readers' names.
func Compare(ctx context.Context, s Source, prefix string, rounds int, readers ...Reader) ([]Series, error) {
	all := make([]Series, len(readers))
	for i, r := range readers {
		all[i] = Series{Name: r.Name, Records: float64(s.Records)}
	}
	for round := range rounds + 1 {
		for i := range readers {
			i = (i + round) % len(readers)
			used, err := readers[i].labelled(ctx, s, fmt.Sprintf("%s-%s-%d", prefix, readers[i].Name, round))
			if err != nil {
				return nil, err
			}
			if round > 0 {
				all[i].Rounds = append(all[i].Rounds, used)
			}
		}
	}
	return all, nil
}

func (r Reader) labelled(ctx context.Context, s Source, group string) (used Usage, err error) {
	pprof.Do(ctx, pprof.Labels("reader", r.Name), func(ctx context.Context) {
		used, err = r.Run(ctx, s, group)
	})
	return used, err
}

// Figure is one number of what a reader used.
type Figure func(Usage) float64

// The figures.
var (
	CPUTime Figure = func(u Usage) float64 { return float64(u.CPU.Nanoseconds()) }
	Speed   Figure = func(u Usage) float64 { return 1 / u.Elapsed.Seconds() }
	Allocs  Figure = func(u Usage) float64 { return u.Allocs }
	Bytes   Figure = func(u Usage) float64 { return u.Bytes }
	GCs     Figure = func(u Usage) float64 { return u.GCs }
)

// Throughput returns the median of records a second.
func (s Series) Throughput() float64 { return s.Records * s.Median(Speed) }

// PerRecord returns the median of a figure, divided by the number of records.
func (s Series) PerRecord(f Figure) float64 { return s.Median(f) / s.Records }

// Median returns that of a figure.
func (s Series) Median(f Figure) float64 {
	values := make([]float64, len(s.Rounds))
	for i, u := range s.Rounds {
		values[i] = f(u)
	}
	return Median(values)
}

// Ratio returns the median, over the rounds, of a figure divided by another
// series' of the same round, and the smallest and largest of these.
func (s Series) Ratio(f Figure, of Series) (median, least, most float64) {
	ratios := make([]float64, len(s.Rounds))
	for i := range ratios {
		ratios[i] = f(s.Rounds[i]) / f(of.Rounds[i])
	}
	return Median(ratios), slices.Min(ratios), slices.Max(ratios)
}

// Median returns the median of values, which it sorts.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	if n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[n/2]
}
