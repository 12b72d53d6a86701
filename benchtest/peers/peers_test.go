package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

func TestMain(m *testing.M) {
	bench.ServeIfBroker()
	serveIfChild(append(goPeers(), miscounting))
	os.Exit(m.Run())
}

// layout is small: what is tested is that libraries read all of it once.
var layout = bench.Layout{Records: 20_000, Partitions: 4, Batch: 500}

// miscounting is the bare loop, but for a record that it counts twice.
var miscounting = peer{name: "miscounting", read: func(ctx context.Context, j job) (bench.Tally, bench.Usage, error) {
	tally, used, err := bench.Bare(j.Cost).Read(ctx, j.source(), j.Group)
	tally.Add(0)
	return tally, used, err
}}

func startSource(t *testing.T) bench.Source {
	t.Helper()
	s, stop, err := bench.StartBroker(layout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestGo lets each Go library read the topic in a process of its own. That all
// records were read once and are committed is what Reader.Run checks.
func TestGo(t *testing.T) {
	s := startSource(t)
	for _, line := range missingPeers() {
		t.Log("left out:", line)
	}
	for _, p := range goPeers() {
		t.Run(p.String(), func(t *testing.T) { read(t, p, s) })
	}
}

// TestPython lets Sentry's Arroyo do so where it has been installed already, or
// where ARROYO_REQUIRE_PYTHON=1 says that it has to be.
func TestPython(t *testing.T) {
	interpreter, ok, err := pythonInterpreter()
	if os.Getenv("ARROYO_REQUIRE_PYTHON") == "1" {
		interpreter, err = installPython(t.Context())
		ok = true
	}
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Skip("sentry-arroyo is not installed: go run . -short does that")
	}
	s := startSource(t)
	for _, p := range pythons(interpreter) {
		t.Run(p.String(), func(t *testing.T) { read(t, p, s) })
	}
}

func read(t *testing.T, p peer, s bench.Source) {
	t.Helper()
	var version string
	used, err := p.reader(bench.None, &version).Run(t.Context(), s, t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if used.First <= 0 || used.First > used.Elapsed {
		t.Errorf("it took %v, and %v to the first record", used.Elapsed, used.First)
	}
	if used.CPU <= 0 {
		t.Errorf("it used %v of CPU time", used.CPU)
	}
	t.Logf("version %s", version)
}

func TestComparisonGoesOnWithoutWhoMiscounts(t *testing.T) {
	s := startSource(t)
	var log bytes.Buffer
	c := comparison{source: s, small: s, broker: "kfake", topic: "small", cost: bench.None, rounds: 2, log: &log}
	bare, arroyo := ours()[0], ours()[1]
	rows, err := c.run(t.Context(), t.Name(), []peer{bare, miscounting, arroyo})
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 3 {
		t.Fatalf("there are %d rows, not 3", len(rows))
	}
	for i, r := range rows {
		if r.Broker != "kfake" || r.Topic != "small" || r.Records != layout.Records {
			t.Errorf("row %d does not say what was read: %+v", i, r)
		}
	}
	if r := rows[0]; r.Name != "franz-go" || r.Rounds != 2 || r.ThroughputRatio.Most != 1 || r.CPURatio.Least != 1 {
		t.Errorf("the bare loop's row is %+v", r)
	}
	if r := rows[1]; !strings.Contains(r.Error, "read 20001 records") || r.Rounds != 0 {
		t.Errorf("the row of the one that miscounts is %+v", r)
	}
	if r := rows[2]; r.Name != "arroyo" || r.Error != "" || r.Rounds != 2 || r.Throughput.Median <= 0 {
		t.Errorf("Arroyo's row is %+v", r)
	}
	if want := "left out: miscounting"; strings.Count(log.String(), want) != 1 {
		t.Errorf("the log does not say %q once:\n%s", want, &log)
	}
}

func TestComparisonNeedsTheBareLoop(t *testing.T) {
	s := startSource(t)
	c := comparison{source: s, small: s, rounds: 1, log: new(bytes.Buffer)}
	if rows, err := c.run(t.Context(), t.Name(), []peer{miscounting, ours()[1]}); err == nil {
		t.Errorf("there is nothing to compare with, but there are rows: %+v", rows)
	}
}

func TestKafkaHasOneBroker(t *testing.T) {
	err := run(t.Context(), options{kafka: true, brokers: 3}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "-brokers") {
		t.Errorf("it returns %v", err)
	}
}
