package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// peers runs the module of the other libraries. What it leaves out it says in
// lines that begin with leftOut; so does this, if it cannot be run at all.
func (p plan) peers(ctx context.Context) (rows []bench.Row, missing []string, err error) {
	var args []string
	if p.rust {
		args = append(args, "-rust")
	}
	return p.runPeers(ctx, p.rounds, args...)
}

// peerCells runs Go's libraries in all cells whose work costs nothing. Each
// broker of a cluster has a part of the partitions, as usual: what a fetch of
// one brings, kgo decompresses on one core.
func (p plan) peerCells(ctx context.Context) (rows []bench.Row, err error) {
	cells := "/none$"
	if p.short {
		cells = "^10000B/zstd/8partitions/none$"
	}
	rows, _, err = p.runPeers(ctx, min(p.rounds, 3), "-cells", cells, "-brokers", "3", "-python=false", "-only", "arroyo (defaults|partitioned)|tuned")
	return rows, err
}

func (p plan) runPeers(ctx context.Context, rounds int, args ...string) (rows []bench.Row, missing []string, err error) {
	args = append([]string{"run", ".", "-rounds", strconv.Itoa(rounds)}, args...)
	if p.short {
		args = append(args, "-short")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join("benchtest", "peers")
	var stderr bytes.Buffer
	cmd.Stderr = io.MultiWriter(p.log, &stderr)
	out, err := cmd.Output()
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		return nil, []string{fmt.Sprintf("all of them: go run . in benchtest/peers fails: %v", err)}, nil
	}
	rows, err = parseRows(out)
	return rows, leftOut(stderr.String()), err
}

func parseRows(lines []byte) (rows []bench.Row, err error) {
	for in := json.NewDecoder(bytes.NewReader(lines)); ; {
		var r bench.Row
		if err := in.Decode(&r); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return nil, fmt.Errorf("benchtest/peers wrote what is not a row: %w", err)
		}
		if r.Error == "" {
			rows = append(rows, r)
		}
	}
}

func leftOut(log string) (missing []string) {
	for line := range strings.Lines(log) {
		if what, ok := strings.CutPrefix(line, "left out: "); ok {
			missing = append(missing, strings.TrimSpace(what))
		}
	}
	return missing
}
