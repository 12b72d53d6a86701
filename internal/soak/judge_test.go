package main

import (
	"strings"
	"testing"
	"time"
)

// What grows is found, whatever it is, and what does not is not.
func TestJudge(t *testing.T) {
	const warmUp, rate = 3 * time.Minute, 1000
	for name, tt := range map[string]struct {
		minutes int
		row     func(minute int) row
		want    string
	}{
		"steady":            {20, func(m int) row { return row{lag: int64(m % 3 * 1000)} }, ""},
		"it warms up":       {20, func(m int) row { return row{figures: figures{Goroutines: min(m, 3) * 100}} }, ""},
		"a peak":            {20, func(m int) row { return row{lag: int64(m / 19 * 500_000)} }, ""},
		"goroutines leak":   {20, func(m int) row { return row{figures: figures{Goroutines: 100 + 10*m}} }, "goroutines grew"},
		"the heap grows":    {20, func(m int) row { return row{figures: figures{Heap: uint64(m) * mib}} }, "heap grew"},
		"the process grows": {20, func(m int) row { return row{figures: figures{System: uint64(m) * 4 * mib}} }, "system grew"},
		"it is too slow":    {20, func(m int) row { return row{lag: int64(m) * 10_000} }, "never below"},
		"too short":         {4, func(int) row { return row{} }, "too few"},
	} {
		t.Run(name, func(t *testing.T) {
			var rows []row
			for m := range tt.minutes {
				r := tt.row(m)
				r.at = time.Duration(m) * time.Minute
				rows = append(rows, r)
			}
			err := judge("eager", rows, warmUp, rate)
			if tt.want == "" {
				if err != nil {
					t.Errorf("found what is not there: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("found %v, want %q", err, tt.want)
			}
		})
	}
}
