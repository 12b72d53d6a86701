package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// hotPath runs the benchmark of what a record costs without a broker.
func (p plan) hotPath(ctx context.Context) ([]pathRow, error) {
	fmt.Fprintf(p.log, "%s: without a broker, %d rounds\n", time.Now().Format(time.TimeOnly), p.rounds)
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkHotPath$", "-cpu", "1", "-count", strconv.Itoa(p.rounds), ".")
	if p.short {
		cmd.Args = append(cmd.Args, "-benchtime", "100x")
	}
	cmd.Stderr = p.log
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return parsePaths(string(out))
}

// pathRow is what a record costs on one path.
type pathRow struct {
	Name   string
	Time   bench.Spread // ns a record
	Allocs float64      // a record
}

// parsePaths reads what a benchmark printed.
func parsePaths(out string) (rows []pathRow, err error) {
	times := make(map[string][]float64)
	at := make(map[string]int)
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, ok := strings.CutPrefix(fields[0], "BenchmarkHotPath/")
		if !ok {
			continue
		}
		if _, ok := at[name]; !ok {
			at[name] = len(rows)
			rows = append(rows, pathRow{Name: name})
		}
		for i := 3; i < len(fields); i += 2 { // behind the name and the count: values and their units
			value, err := strconv.ParseFloat(fields[i-1], 64)
			if err != nil {
				return nil, fmt.Errorf("a figure of %s: %w", name, err)
			}
			switch fields[i] {
			case "ns/record":
				times[name] = append(times[name], value)
			case "allocs/record":
				rows[at[name]].Allocs = max(rows[at[name]].Allocs, value)
			}
		}
	}
	for i := range rows {
		r := &rows[i]
		if len(times[r.Name]) == 0 {
			return nil, fmt.Errorf("the benchmark gives no ns/record of %s", r.Name)
		}
		r.Time = bench.SpreadOf(times[r.Name])
	}
	return rows, nil
}

// paths are what the benchmark's paths are called in the report.
var paths = map[string]string{
	"Bare":  "a plain loop over the records",
	"Calls": "a loop that calls the functions of three steps",
	"Noop":  "Arroyo: nothing but tracking",
}

func pathsMarkdown(rows []pathRow, rounds int) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Without a broker\n\nFrom a record that is in memory to the watermark behind it, on one core; %s.\n\n", medians(rounds))
	b.WriteString("| path | ns/record | allocations/record |\n|---|--:|--:|\n")
	for _, r := range rows {
		name, ok := paths[r.Name]
		if !ok {
			name = "Arroyo: " + strings.ReplaceAll(r.Name, "-", ", ")
		}
		fmt.Fprintf(&b, "| %s | %.1f (%.1f–%.1f) | %.3f |\n", name, r.Time.Median, r.Time.Least, r.Time.Most, r.Allocs)
	}
	return b.String()
}
