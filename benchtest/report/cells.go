package main

import (
	"fmt"
	"html"
	"strings"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// cellsMarkdown returns the table of libraries in the cells of the matrix, a
// row for each cell. The rows of a cell follow each other; the first one of
// each is the bare loop.
func cellsMarkdown(rows []bench.Row) string {
	cells, readers := byCell(rows)
	if len(cells) == 0 {
		return ""
	}
	var b strings.Builder
	fastest := 0
	for _, c := range cells {
		if c.ours > c.others {
			fastest++
		}
	}
	rounds, figure := "one round", func(s bench.Spread) string { return fmt.Sprintf("%.2f", s.Median) }
	if rows[0].Rounds > 1 {
		rounds, figure = medians(rows[0].Rounds), ratio
	}
	fmt.Fprintf(&b, "\n### Other libraries, all sizes, codecs and partitions\n\n"+
		"Throughput as a multiple of the bare loop's, with three brokers in a process; %s. "+
		"Arroyo, with one pipeline or with one for each partition, is faster than all other libraries in %d of %d.\n\n",
		rounds, fastest, len(cells))
	fmt.Fprintf(&b, "<details><summary>All of them</summary>\n\n| topic and work | bare: records/s")
	for _, r := range readers {
		fmt.Fprintf(&b, " | %s", html.EscapeString(r))
	}
	b.WriteString(" |\n|---|--:" + strings.Repeat("|--:", len(readers)) + "|\n")
	for _, c := range cells {
		fmt.Fprintf(&b, "| %s | %s", c.name, thousands(c.bare))
		for _, r := range readers {
			if row, ok := c.rows[r]; ok {
				fmt.Fprintf(&b, " | %s", figure(row.ThroughputRatio))
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n</details>\n")
	return b.String()
}

// peerCell is what libraries came to in a cell.
type peerCell struct {
	name         string
	bare         float64 // records/s
	rows         map[string]bench.Row
	ours, others float64 // the highest ratios
}

// byCell sorts rows by their cells, and returns the names of all but the bare
// loop, in their order.
func byCell(rows []bench.Row) (cells []*peerCell, readers []string) {
	seen := make(map[string]bool)
	for _, r := range rows {
		if len(cells) == 0 || cells[len(cells)-1].name != r.Topic {
			cells = append(cells, &peerCell{name: r.Topic, rows: make(map[string]bench.Row)})
		}
		c := cells[len(cells)-1]
		if r.Name == r.Baseline {
			c.bare = r.Throughput.Median
			continue
		}
		name := label(r)
		c.rows[name] = r
		if r.Name == "arroyo" {
			c.ours = max(c.ours, r.ThroughputRatio.Median)
		} else {
			c.others = max(c.others, r.ThroughputRatio.Median)
		}
		if !seen[name] {
			seen[name] = true
			readers = append(readers, name)
		}
	}
	return cells, readers
}
