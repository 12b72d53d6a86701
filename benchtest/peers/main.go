package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"text/tabwriter"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

func main() {
	bench.ServeIfBroker()
	serveIfChild(goPeers())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	o.flags()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

type options struct {
	short, kafka, python, rust bool
	rounds, records, brokers   int
	only, cells                string
}

func (o *options) flags() {
	flag.BoolVar(&o.short, "short", false, "a tenth of the records and one round, to see whether it works")
	flag.IntVar(&o.rounds, "rounds", 5, "`rounds` that count")
	flag.IntVar(&o.records, "records", 2_000_000, "`records` of 100 B in 8 partitions; a fifth of them for slow libraries")
	flag.IntVar(&o.brokers, "brokers", 1, "`brokers` of kfake's cluster, each of which has a part of the partitions")
	flag.StringVar(&o.only, "only", "", "only the libraries whose names match this `pattern`, and the bare loop")
	flag.StringVar(&o.cells, "cells", "", "instead those of the benchmark Matrix whose names match this `pattern`, \".\" for all whose work does not wait, which takes an hour or more")
	flag.BoolVar(&o.kafka, "kafka", false, "with the real Kafka that internal/realkafka/fetch fetches")
	flag.BoolVar(&o.python, "python", true, "with Sentry's Arroyo for Python")
	flag.BoolVar(&o.rust, "rust", false, "with Sentry's Arroyo for Rust; its first build takes some minutes")
	flag.Parse()
	if o.short {
		o.rounds, o.records = 1, o.records/10
	}
}

func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	if o.kafka && o.brokers > 1 {
		return errors.New("-brokers is for kfake: the real Kafka has one broker")
	}
	peers, err := o.peers(ctx, stderr)
	if err != nil {
		return err
	}
	cells, err := o.wanted()
	if err != nil {
		return err
	}
	var all []bench.Row
	for _, c := range cells {
		rows, err := o.compare(ctx, c, peers, stderr)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := json.NewEncoder(stdout).Encode(r); err != nil {
				return err
			}
		}
		all = append(all, rows...)
	}
	return table(stderr, all)
}

// peers returns those that can be had and are wanted.
func (o options) peers(ctx context.Context, stderr io.Writer) ([]peer, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	all := goPeers()
	for _, line := range missingPeers() {
		fmt.Fprintln(stderr, "left out:", line)
	}
	if o.python {
		if interpreter, err := installPython(ctx); err != nil {
			fmt.Fprintln(stderr, "left out: sentry-arroyo (Python):", err)
		} else {
			all = append(all, pythons(interpreter)...)
		}
	}
	if o.rust {
		if program, err := buildRust(ctx, stderr); err != nil {
			fmt.Fprintln(stderr, "left out: sentry-arroyo (Rust):", err)
		} else {
			all = append(all, rusts(program)...)
		}
	}
	wanted := all[:1] // what the others are compared with
	for _, p := range all[1:] {
		if only.MatchString(p.String()) {
			wanted = append(wanted, p)
		}
	}
	return wanted, nil
}

type cell struct {
	name   string
	layout bench.Layout
	cost   bench.Cost
}

// wanted returns what is to be read.
func (o options) wanted() (cells []cell, err error) {
	if o.cells == "" {
		return []cell{{"100B/none/8partitions/none", bench.Large(o.records), bench.None}}, nil
	}
	pattern, err := regexp.Compile(o.cells)
	if err != nil {
		return nil, fmt.Errorf("-cells: %w", err)
	}
	for _, c := range bench.Matrix() {
		if c.Cost != bench.Wait && pattern.MatchString(c.String()) {
			cells = append(cells, cell{c.String(), c.Layout(o.short), c.Cost})
		}
	}
	if len(cells) == 0 {
		return nil, errors.New("-cells: there is no such cell whose work does not wait: their names are like 100B/none/8partitions/none")
	}
	return cells, nil
}

func (o options) compare(ctx context.Context, c cell, peers []peer, stderr io.Writer) (rows []bench.Row, err error) {
	c.layout.Brokers = o.brokers
	var able []peer
	for _, p := range peers {
		if c.cost == bench.None || !p.noWork {
			able = append(able, p)
		}
	}
	start := startBrokers
	if o.kafka {
		start = startKafka
	}
	b, err := start(ctx, c.layout)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	fmt.Fprintf(stderr, "%s: %s, %d records, for slow readers %d; %d readers in turn, 1+%d rounds\n", time.Now().Format(time.TimeOnly),
		c.name, b.full.Records, b.small.Records, len(able), o.rounds)
	return comparison{source: b.full, small: b.small, broker: b.name, topic: c.name, cost: c.cost, rounds: o.rounds, log: stderr}.
		run(ctx, "peers", able)
}

func table(to io.Writer, rows []bench.Row) error {
	w := tabwriter.NewWriter(to, 0, 8, 2, ' ', tabwriter.AlignRight)
	topic := ""
	for _, r := range rows {
		if r.Topic != topic {
			topic = r.Topic
			fmt.Fprintf(w, "\n%s\trecords/s\t× bare\tleast–most\tCPU ns/record\t× bare\tleast–most\tfirst record\t\n", r.Topic)
		}
		name := r.Name + " " + r.Variant
		if r.Version != "" {
			name += " " + r.Version
		}
		if r.Error != "" {
			fmt.Fprintf(w, "%s\tfailed\t\t\t\t\t\t\t\n", name)
			continue
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f–%.2f\t%.0f\t%.2f\t%.2f–%.2f\t%.2f s\t\n", name,
			r.Throughput.Median, r.ThroughputRatio.Median, r.ThroughputRatio.Least, r.ThroughputRatio.Most,
			r.CPU.Median, r.CPURatio.Median, r.CPURatio.Least, r.CPURatio.Most, r.First.Median)
	}
	return w.Flush()
}
