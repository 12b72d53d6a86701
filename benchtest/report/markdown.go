package main

import (
	"fmt"
	"html"
	"strings"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// labels are what the end-to-end readers are called in the report.
var labels = map[string]string{
	"bare":                    "bare franz-go loop",
	"pooled":                  "bare loop, pools written by hand",
	"arroyo":                  "Arroyo: RunTask, Filter, ForEach",
	"arroyo-batch":            "Arroyo: ForEachBatch of 1,000",
	"arroyo-partitioned":      "Arroyo: a pipeline per partition",
	"arroyo-recycle":          "Arroyo: RecycleRecords",
	"arroyo-recycle-one-step": "Arroyo: RecycleRecords, all in one ForEach",
}

func label(r bench.Row) string {
	if r.Variant != "" {
		return r.Name + ", " + r.Variant
	}
	if l, ok := labels[r.Name]; ok {
		return l
	}
	return r.Name
}

// markdown returns what goes between the markers.
func (r report) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Measured on %s: %s, %d cores, %s; Go %s, franz-go %s, kfake %s.\n\n", r.Date.Format("2 January 2006"),
		m.CPU, m.Cores, m.OS, m.Go, m.Versions[franzModule], m.Versions[kfakeModule])
	fmt.Fprintf(&b, "![Throughput as a multiple of the bare loop's](performance.svg)\n\n")

	fmt.Fprintf(&b, "### End to end\n\n%s\n\n", about(r.EndToEnd))
	b.WriteString("| reader | records/s | × bare | CPU ns/record | × bare | allocations/record |\n|---|--:|--:|--:|--:|--:|\n")
	for _, row := range r.EndToEnd {
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f | %s | %.3f |\n", label(row),
			thousands(row.Throughput.Median), ratio(row.ThroughputRatio), row.CPU.Median, ratio(row.CPURatio), row.Allocs.Median)
	}

	b.WriteString(pathsMarkdown(r.Paths, r.EndToEnd[0].Rounds))

	fmt.Fprintf(&b, "\n### Sizes, codecs, partitions, work\n\n%s\n\n", matrixAbout(r.Matrix))
	b.WriteString("| value | codec | partitions | work | by hand: records/s | Arroyo × | CPU × | partitioned × | CPU × |\n|--:|---|--:|---|--:|--:|--:|--:|--:|\n")
	for _, cell := range r.Matrix {
		c, rows := cell.Cell, cell.Rows
		fmt.Fprintf(&b, "| %s B | %s | %s | %s | %s", thousands(float64(c.ValueSize)), c.Codec, thousands(float64(c.Partitions)), c.Cost, thousands(rows[0].Throughput.Median))
		for i := 1; i <= 2; i++ {
			if i < len(rows) {
				fmt.Fprintf(&b, " | %s | %s", ratio(rows[i].ThroughputRatio), ratio(rows[i].CPURatio))
			} else {
				b.WriteString(" | |")
			}
		}
		b.WriteString(" |\n")
	}

	b.WriteString("\n### Other libraries\n")
	if len(r.Peers) > 0 {
		fmt.Fprintf(&b, "\n%s\n\n", about(r.Peers))
		b.WriteString("| library | version | records/s | × bare | CPU ns/record | × bare | first record |\n|---|---|--:|--:|--:|--:|--:|\n")
		for _, row := range r.Peers {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %.2f s |\n", html.EscapeString(label(row)), row.Version,
				thousands(row.Throughput.Median), ratio(row.ThroughputRatio), thousands(row.CPU.Median), ratio(row.CPURatio), row.First.Median)
		}
	}
	for i, line := range r.Missing {
		if i == 0 {
			b.WriteString("\nLeft out:\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", html.EscapeString(line))
	}
	b.WriteString(cellsMarkdown(r.Cells))
	return b.String()
}

// about says what a table is made of.
func about(rows []bench.Row) string {
	most, least := 0, rows[0].Records
	for _, r := range rows {
		most, least = max(most, r.Records), min(least, r.Records)
	}
	text := thousands(float64(most)) + " records"
	if least < most {
		text += " (" + thousands(float64(least)) + " for slow libraries)"
	}
	return fmt.Sprintf("%s of 100 B in 8 partitions, no compression; %s.", text, medians(rows[0].Rounds))
}

func matrixAbout(cells []matrixRow) string {
	return fmt.Sprintf("Ratios to the loop written by hand; %s.", medians(cells[0].Rows[0].Rounds))
}

func medians(rounds int) string {
	if rounds == 1 {
		return "one round, so it only shows that this works"
	}
	return fmt.Sprintf("medians of %d rounds, in brackets the least and the most", rounds)
}

func ratio(s bench.Spread) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.Median, s.Least, s.Most)
}

// thousands writes a number without fraction, its digits in groups of three.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
