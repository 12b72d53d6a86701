package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// row is what was measured of a group at a moment.
type row struct {
	at time.Duration
	figures
	lag    int64
	guests int
	events int
}

const mib = 1 << 20

func printHead() {
	fmt.Println("| minute | protocol | live heap, MiB | from the system, MiB | goroutines | lag | processed | assigned | lost | letters | guests | events |")
	fmt.Println("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
}

func (r row) print(protocol string) {
	fmt.Printf("| %.0f | %s | %.1f | %.1f | %d | %d | %d | %d | %d | %d | %d | %d |\n", r.at.Minutes(), protocol,
		float64(r.Heap)/mib, float64(r.System)/mib, r.Goroutines, r.lag, r.Processed, r.Assigned, r.Lost, r.Letters, r.guests, r.events)
}

// What may grow from the first third of a soak to the last, because things are
// never quite the same.
const (
	growth         = 1.3
	heapSlack      = 4 * mib
	systemSlack    = 16 * mib
	goroutineSlack = 20
	lagSlack       = 30 // seconds of records
)

// judge returns what has grown: the medians of the last third of the rows are
// compared with those of the first third after the warm-up. And the group has
// to have been nearly caught up once in the last third.
func judge(protocol string, rows []row, warmUp time.Duration, rate float64) error {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.at < warmUp })
	third := len(rows) / 3
	if third == 0 {
		return fmt.Errorf("%s: %d measurements after the warm-up are too few to judge: run it longer", protocol, len(rows))
	}
	first, last := rows[:third], rows[len(rows)-third:]
	var errs []error
	grown := func(what string, of func(row) float64, slack float64) {
		before, after := median(first, of), median(last, of)
		if after > before*growth+slack {
			errs = append(errs, fmt.Errorf("%s: %s grew from %.0f to %.0f", protocol, what, before, after))
		}
	}
	grown("the live heap", func(r row) float64 { return float64(r.Heap) }, heapSlack)
	grown("memory from the system", func(r row) float64 { return float64(r.System) }, systemSlack)
	grown("the number of goroutines", func(r row) float64 { return float64(r.Goroutines) }, goroutineSlack)
	lowest := slices.MinFunc(last, func(a, b row) int { return int(a.lag - b.lag) }).lag
	if float64(lowest) > lagSlack*rate {
		errs = append(errs, fmt.Errorf("%s: the lag was never below %d at the end", protocol, lowest))
	}
	return errors.Join(errs...)
}

func median(rows []row, of func(row) float64) float64 {
	values := make([]float64, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
