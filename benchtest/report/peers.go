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
	args := []string{"run", ".", "-rounds", strconv.Itoa(p.rounds)}
	if p.short {
		args = append(args, "-short")
	}
	if p.rust {
		args = append(args, "-rust")
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
