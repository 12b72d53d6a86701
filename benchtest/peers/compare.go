package main

import (
	"context"
	"fmt"
	"io"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// comparison is what peers do in turns.
type comparison struct {
	source bench.Source
	small  bench.Source // for slow peers
	broker string       // kfake or Kafka
	topic  string       // what is in it
	cost   bench.Cost
	rounds int // after one that does not count
	log    io.Writer
}

func (c comparison) sourceOf(p peer) bench.Source {
	if p.slow {
		return c.small
	}
	return c.source
}

// run returns a row for each peer; the first peer is what the ratios are to.
// Unlike bench.Compare it goes on without a peer that fails, but for the first.
func (c comparison) run(ctx context.Context, prefix string, peers []peer) ([]bench.Row, error) {
	type entry struct {
		peer
		version string
		series  bench.Series
		err     error
	}
	entries := make([]entry, len(peers))
	for i, p := range peers {
		entries[i] = entry{peer: p, series: bench.Series{Name: p.name, Records: float64(c.sourceOf(p).Records)}}
	}
	for round := range c.rounds + 1 {
		for i := range entries {
			i = (i + round) % len(entries)
			e := &entries[i]
			if e.err != nil {
				continue
			}
			var used bench.Usage
			used, e.err = e.reader(c.cost, &e.version).Run(ctx, c.sourceOf(e.peer), fmt.Sprintf("%s-%d-%d", prefix, i, round))
			if e.err != nil {
				if i == 0 || ctx.Err() != nil {
					return nil, e.err
				}
				fmt.Fprintf(c.log, "left out: %s: %v\n", e.peer, e.err)
				continue
			}
			if round > 0 {
				e.series.Rounds = append(e.series.Rounds, used)
			}
		}
	}
	rows := make([]bench.Row, len(entries))
	for i, e := range entries {
		r := bench.Row{Name: e.name, Error: errorText(e.err)}
		if e.err == nil {
			r = e.series.Row(entries[0].series)
		}
		r.Variant, r.Version = e.variant, e.version
		r.Broker, r.Topic, r.Records = c.broker, c.topic, c.sourceOf(e.peer).Records
		rows[i] = r
	}
	return rows, nil
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
