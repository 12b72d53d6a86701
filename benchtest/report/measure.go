package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// report is what was measured, and on what.
type report struct {
	Date     time.Time
	Machine  machine
	EndToEnd []bench.Row // the first is the bare loop
	Paths    []pathRow   // without a broker
	Matrix   []matrixRow
	Peers    []bench.Row // the first is the bare loop
	Missing  []string    // why peers are not there, a line each
	Cells    []bench.Row // of peers in the cells of the matrix, cell by cell
}

// matrixRow is a cell, and what its readers came to. The first reader is the
// loop written by hand.
type matrixRow struct {
	Cell bench.Cell
	Rows []bench.Row
}

// plan is how much is measured.
type plan struct {
	short  bool
	rust   bool // with the library that takes minutes to build
	rounds int
	log    io.Writer
}

func (p plan) measure(ctx context.Context) (r report, err error) {
	if r.EndToEnd, err = p.endToEnd(ctx); err != nil {
		return r, err
	}
	if r.Paths, err = p.hotPath(ctx); err != nil {
		return r, err
	}
	for _, c := range p.cells() {
		rows, err := p.compare(ctx, c.String(), c.Layout(p.short), min(p.rounds, 3), c.Readers()...)
		if err != nil {
			return r, err
		}
		r.Matrix = append(r.Matrix, matrixRow{c, rows})
	}
	if r.Peers, r.Missing, err = p.peers(ctx); err != nil {
		return r, err
	}
	r.Cells, err = p.peerCells(ctx)
	return r, err
}

func (p plan) endToEnd(ctx context.Context) ([]bench.Row, error) {
	records := 2_000_000
	if p.short {
		records = 300_000
	}
	return p.compare(ctx, "end to end", bench.Large(records), p.rounds,
		bench.Bare(bench.None), bench.Shared(bench.None), bench.Batching(), bench.Partitioned(bench.None),
		bench.Pooled(bench.None), bench.Recycling(bench.None), bench.RecyclingOneStep(bench.None))
}

// cells returns those that the report has of the matrix: all sizes and codecs,
// and for the smallest value without compression all numbers of partitions and
// all kinds of work.
func (p plan) cells() (cells []bench.Cell) {
	for _, c := range bench.Matrix() {
		usual := c.Partitions == 8 && c.Cost == bench.None
		plain := c.ValueSize == 100 && c.Codec == "none" && (c.Partitions == 8 || c.Cost == bench.None)
		if (usual || plain) && (!p.short || c.Short) {
			cells = append(cells, c)
		}
	}
	return cells
}

// compare lets readers read a topic of a broker of its own.
func (p plan) compare(ctx context.Context, name string, l bench.Layout, rounds int, readers ...bench.Reader) (rows []bench.Row, err error) {
	fmt.Fprintf(p.log, "%s: %s, %d records, %d readers in turn, 1+%d rounds\n", time.Now().Format(time.TimeOnly), name, l.Records, len(readers), rounds)
	s, stop, err := bench.StartBroker(l)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	all, err := bench.Compare(ctx, s, "report", rounds, readers...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, series := range all {
		r := series.Row(all[0])
		r.Broker, r.Topic = "kfake", name
		rows = append(rows, r)
	}
	return rows, nil
}
