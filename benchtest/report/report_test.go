package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

var update = flag.Bool("update", false, "write testdata anew")

// sample is a report of rounds that nobody measured.
func sample() report {
	usage := func(milliseconds, cpu int) bench.Usage {
		return bench.Usage{
			Elapsed: time.Duration(milliseconds) * time.Millisecond,
			CPU:     time.Duration(cpu) * time.Millisecond,
			First:   100 * time.Millisecond,
			Allocs:  25_000,
		}
	}
	series := func(name string, records float64, rounds ...bench.Usage) bench.Series {
		return bench.Series{Name: name, Records: records, Rounds: rounds}
	}
	bare := series("bare", 2_000_000, usage(1000, 1000), usage(1100, 1050), usage(900, 1010))
	rows := func(all ...bench.Series) (rows []bench.Row) {
		for _, s := range all {
			rows = append(rows, s.Row(all[0]))
		}
		return rows
	}
	peers := rows(bare,
		series("arroyo", 2_000_000, usage(1000, 1020), usage(1000, 1030), usage(1000, 1040)),
		series("a<b>", 400_000, usage(2000, 2000), usage(2500, 2500), usage(2200, 2100)))
	for i, named := range []bench.Row{
		{Name: "franz-go", Variant: "bare loop", Version: "v1.2.3"},
		{Name: "arroyo", Variant: "defaults"},
		{Name: "a<b>", Variant: "tuned", Version: "v0.4.2"},
	} {
		peers[i].Name, peers[i].Variant, peers[i].Version = named.Name, named.Variant, named.Version
	}
	return report{
		Date: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC),
		Machine: machine{
			CPU: "A CPU", Cores: 2, OS: "An OS 12", Go: "1.26.8",
			Versions: map[string]string{franzModule: "v1.2.3", kfakeModule: "v0.0.1"},
		},
		EndToEnd: rows(bare, series("arroyo-recycle", 2_000_000, usage(500, 600), usage(550, 630), usage(600, 610))),
		Paths: []pathRow{
			{"Bare", bench.Spread{Median: 1, Least: 0.5, Most: 2}, 0},
			{"RunTask-Filter-ForEach", bench.Spread{Median: 10.26, Least: 10, Most: 11}, 0.0002},
		},
		Matrix: []matrixRow{
			{bench.Cell{ValueSize: 100, Codec: "lz4", Partitions: 1000, Cost: bench.None},
				rows(bare, series("arroyo", 2_000_000, usage(1000, 1010), usage(1100, 1060), usage(900, 1020)),
					series("arroyo-partitioned", 2_000_000, usage(2000, 2010), usage(2200, 2100), usage(1800, 2020)))},
			{bench.Cell{ValueSize: 10_000, Codec: "none", Partitions: 8, Cost: bench.Wait},
				rows(bare, series("arroyo-parallel", 2_000_000, usage(1000, 1010), usage(1100, 1060), usage(900, 1020)))},
		},
		Peers:   peers,
		Missing: []string{"something: it is not there"},
		Cells:   sampleCells(),
	}
}

// sampleCells are those of two cells: in one of them, Arroyo is the fastest. The
// second cell lacks a reader, which failed.
func sampleCells() (rows []bench.Row) {
	row := func(topic, name, variant string, throughput float64) {
		rows = append(rows, bench.Row{
			Name: name, Variant: variant, Topic: topic, Rounds: 3, Baseline: "franz-go",
			Throughput:      bench.Spread{Median: 1000 * throughput},
			ThroughputRatio: bench.Spread{Median: throughput, Least: throughput - 0.5, Most: throughput + 0.5},
		})
	}
	row("100B/none", "franz-go", "bare loop", 1)
	row("100B/none", "arroyo", "defaults", 0.9)
	row("100B/none", "arroyo", "partitioned", 1.2)
	row("100B/none", "a<b>", "tuned", 1.1)
	row("100B/zstd", "franz-go", "bare loop", 1)
	row("100B/zstd", "arroyo", "defaults", 1)
	row("100B/zstd", "a<b>", "tuned", 1)
	return rows
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what is written; -update replaces it (-want +got):\n%s", path, diff)
	}
}

func TestMarkdown(t *testing.T) { golden(t, "sample.md", sample().markdown()) }

func TestMarkdownWithoutPeers(t *testing.T) {
	r := sample()
	r.Peers, r.Cells = nil, nil
	if got := r.markdown(); !strings.HasSuffix(got, "### Other libraries\n\nLeft out:\n\n- something: it is not there\n") {
		t.Errorf("it ends with %q", got[max(0, len(got)-200):])
	}
}

func TestTablesHaveAsManyCellsAsHeads(t *testing.T) {
	columns := 0
	for line := range strings.Lines(sample().markdown()) {
		n := strings.Count(line, "|")
		if n == 0 {
			columns = 0
		} else if columns == 0 {
			columns = n
		} else if n != columns {
			t.Errorf("%d, not %d: %s", n, columns, line)
		}
	}
}

func TestChart(t *testing.T) {
	svg := sample().chart().svg()
	golden(t, "sample.svg", svg)
	rects := map[string]int{}
	for in := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("it is not well-formed: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
			rects[e.Attr[0].Value]++
		}
	}
	if want := map[string]int{"base": 2, "arroyo": 2, "other": 1}; !cmp.Equal(rects, want) {
		t.Errorf("there are bars %v, not %v", rects, want)
	}
	if !strings.Contains(svg, "prefers-color-scheme: dark") {
		t.Error("it has no colours for dark pages")
	}
}

func TestSplice(t *testing.T) {
	page := "before\n" + beginMarker + "old\n" + endMarker + "after\n"
	got, err := splice(page, "new\n")
	if want := "before\n" + beginMarker + "new\n" + endMarker + "after\n"; got != want || err != nil {
		t.Errorf("it is %q, %v", got, err)
	}
	for _, page := range []string{
		"",
		beginMarker,
		endMarker + beginMarker,
		page + beginMarker,
		page + endMarker,
	} {
		if got, err := splice(page, "new\n"); !errors.Is(err, errNoMarkers) {
			t.Errorf("%q becomes %q, %v", page, got, err)
		}
	}
}

// TestPage fails if the page cannot be written into.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := splice(string(page), ""); err != nil {
		t.Error(err)
	}
}

func TestRowsOfPeers(t *testing.T) {
	rows, err := parseRows([]byte(`{"name":"a","records_per_second":{"median":5}}
{"name":"b","error":"it failed"}
{"name":"c"}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []bench.Row{{Name: "a", Throughput: bench.Spread{Median: 5}}, {Name: "c"}}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the rows are wrong (-want +got):\n%s", diff)
	}
	if rows, err := parseRows([]byte(`{"name":"a"} no`)); err == nil {
		t.Errorf("what is no row becomes %+v", rows)
	}
	if diff := cmp.Diff([]string{"b: why"}, leftOut("12:00:00: x\nleft out: b: why\n")); diff != "" {
		t.Errorf("what is left out is wrong (-want +got):\n%s", diff)
	}
}

func TestPaths(t *testing.T) {
	rows, err := parsePaths(`goos: linux
BenchmarkHotPath/Bare     	 100	 1.0 ns/record
BenchmarkHotPath/Bare     	 100	 3.0 ns/record
BenchmarkHotPath/A-B      	 100	 2.421 B/record	 0.25 allocs/record	 12.0 ns/record	 4096 B/op	 17 allocs/op
BenchmarkHotPath/Bare     	 100	 1.5 ns/record
BenchmarkHotPath/A-B      	 100	 2.421 B/record	 0.5 allocs/record	 10.0 ns/record	 4096 B/op	 17 allocs/op
PASS
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []pathRow{
		{"Bare", bench.Spread{Median: 1.5, Least: 1, Most: 3}, 0},
		{"A-B", bench.Spread{Median: 11, Least: 10, Most: 12}, 0.5},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the rows are wrong (-want +got):\n%s", diff)
	}
	for _, out := range []string{"BenchmarkHotPath/Bare 100 x ns/record", "BenchmarkHotPath/Bare 100 5 ns/op"} {
		if rows, err := parsePaths(out); err == nil {
			t.Errorf("%q becomes %+v", out, rows)
		}
	}
}

func TestMachine(t *testing.T) {
	const cpuinfo = "processor\t: 0\nmodel name\t: A   CPU @ 2 GHz\n\nprocessor\t: 1\nmodel name\t: B\n"
	if got := valueOf(cpuinfo, "model name", ":"); got != "A CPU @ 2 GHz" {
		t.Errorf("the model is %q", got)
	}
	const release = "NAME=\"X\"\nPRETTY_NAME=\"X 12 (y)\"\n"
	if got := valueOf(release, "PRETTY_NAME", "="); got != "X 12 (y)" {
		t.Errorf("the OS is %q", got)
	}
	if got := valueOf(release, "VERSION", "="); got != "" {
		t.Errorf("what is not there is %q", got)
	}
}
