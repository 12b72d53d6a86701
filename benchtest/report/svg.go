package main

import (
	"encoding/xml"
	"fmt"
	"strings"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// chart has a panel for each table of readers.
type chart struct {
	title  string
	panels []panel
}

type panel struct {
	title string
	bars  []bar
}

type bar struct {
	label string
	class string // base, arroyo or other
	value bench.Spread
}

// chart returns that of throughput as a multiple of the bare loop's.
func (r report) chart() chart {
	c := chart{title: "Throughput as a multiple of the bare franz-go loop's; lines are the least and the most of the rounds"}
	for _, p := range []struct {
		title string
		rows  []bench.Row
	}{{"End to end", r.EndToEnd}, {"Other libraries", r.Peers}} {
		if len(p.rows) == 0 {
			continue
		}
		bars := make([]bar, len(p.rows))
		for i, row := range p.rows {
			bars[i] = bar{label(row), classOf(i, row.Name), row.ThroughputRatio}
		}
		c.panels = append(c.panels, panel{p.title, bars})
	}
	return c
}

func classOf(i int, name string) string {
	switch {
	case i == 0:
		return "base"
	case strings.HasPrefix(name, "arroyo"):
		return "arroyo"
	}
	return "other"
}

// In pixels of the unscaled picture.
const (
	svgWidth   = 760
	barsFrom   = 270
	barsTo     = 690
	lineHeight = 22
	barHeight  = 14
)

const svgStyle = `
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.note { font-size: 11px; fill: #59636e; }
.base { fill: #8c959f; } .arroyo { fill: #0969da; } .other { fill: #bc8c5f; }
.one { stroke: #8c959f; stroke-dasharray: 3 3; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .note { fill: #9198a1; }
  .base { fill: #656c76; } .arroyo { fill: #4493f8; } .other { fill: #a47148; }
  .one { stroke: #656c76; } .spread { stroke: #f0f6fc; }
}
`

// svg draws the chart on no background, in colours for light and dark pages.
func (c chart) svg() string {
	var b strings.Builder
	y := lineHeight
	fmt.Fprintf(&b, "<text class=\"note\" x=\"10\" y=\"%d\">%s</text>\n", y, escape(c.title))
	scale := c.scale()
	for _, p := range c.panels {
		y += 2 * lineHeight
		fmt.Fprintf(&b, "<text class=\"title\" x=\"10\" y=\"%d\">%s</text>\n", y, escape(p.title))
		fmt.Fprintf(&b, "<line class=\"one\" x1=\"%[1]d\" x2=\"%[1]d\" y1=\"%d\" y2=\"%d\"/>\n", at(1, scale), y+8, y+6+len(p.bars)*lineHeight)
		for _, bar := range p.bars {
			y += lineHeight
			bar.draw(&b, y, scale)
		}
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n<style>%s</style>\n%s</svg>\n",
		svgWidth, y+lineHeight, escape(c.title), svgStyle, &b)
}

// draw draws a bar whose text stands on the line y.
func (v bar) draw(b *strings.Builder, y int, scale float64) {
	middle := y - 4
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", barsFrom-8, y, escape(v.label))
	fmt.Fprintf(b, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n",
		v.class, barsFrom, middle-barHeight/2, max(1, at(v.value.Median, scale)-barsFrom), barHeight)
	fmt.Fprintf(b, "<line class=\"spread\" x1=\"%d\" x2=\"%d\" y1=\"%[3]d\" y2=\"%[3]d\"/>\n",
		at(v.value.Least, scale), at(v.value.Most, scale), middle)
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\">%.2f</text>\n", at(max(v.value.Most, v.value.Median), scale)+6, y, v.value.Median)
}

// scale returns the value that the longest line reaches.
func (c chart) scale() float64 {
	most := 1.0
	for _, p := range c.panels {
		for _, bar := range p.bars {
			most = max(most, bar.value.Most, bar.value.Median)
		}
	}
	return most
}

func at(value, scale float64) int {
	return barsFrom + int(value/scale*(barsTo-barsFrom)+0.5)
}

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}
