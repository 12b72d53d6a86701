package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// childEnv makes this program read a topic; its value is the job.
const childEnv = "ARROYO_BENCHTEST_PEER"

// childLimit bounds a child's life, also if its parent is killed.
const childLimit = 150 * time.Second

// result is what a child writes to its standard output.
type result struct {
	Records    int     `json:"records"`
	Sum        uint64  `json:"sum"`
	Seconds    float64 `json:"seconds"`       // from the client's making to the last record
	First      float64 `json:"first_seconds"` // of them, to the first record
	CPUSeconds float64 `json:"cpu_seconds"`
	Allocs     float64 `json:"allocs"`
	Version    string  `json:"version"` // of the library
}

func resultOf(t bench.Tally, u bench.Usage, version string) result {
	return result{
		Records:    t.Records,
		Sum:        t.Sum,
		Seconds:    u.Elapsed.Seconds(),
		First:      u.First.Seconds(),
		CPUSeconds: u.CPU.Seconds(),
		Allocs:     u.Allocs,
		Version:    version,
	}
}

func (r result) tally() bench.Tally { return bench.Tally{Records: r.Records, Sum: r.Sum} }

func (r result) usage() bench.Usage {
	return bench.Usage{
		Elapsed: seconds(r.Seconds),
		First:   seconds(r.First),
		CPU:     seconds(r.CPUSeconds),
		Allocs:  r.Allocs,
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// serveIfChild makes a second process of this program one that reads a topic.
// It returns if this is the first.
func serveIfChild(peers []peer) {
	of := os.Getenv(childEnv)
	if of == "" {
		return
	}
	if err := serveChild(of, peers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveChild(of string, peers []peer) error {
	var j job
	if err := json.Unmarshal([]byte(of), &j); err != nil {
		return fmt.Errorf("%s is not a job: %w", childEnv, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), childLimit)
	defer cancel()
	for _, p := range peers {
		if p.String() != j.Peer {
			continue
		}
		tally, used, err := p.read(ctx, j)
		if err != nil {
			return fmt.Errorf("after %d records: %w", tally.Records, err)
		}
		return json.NewEncoder(os.Stdout).Encode(resultOf(tally, used, moduleVersion(p.module)))
	}
	return fmt.Errorf("%s: there is no peer %q", childEnv, j.Peer)
}

// child returns the command for a Go library: this program.
func child(ctx context.Context, j job) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	of, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(of))
	return cmd, nil
}

// reader returns a peer as a bench.Reader, which checks what it read. Its
// version is stored when it is known.
func (p peer) reader(cost bench.Cost, version *string) bench.Reader {
	return bench.Reader{Name: p.String(), Read: func(ctx context.Context, s bench.Source, group string) (bench.Tally, bench.Usage, error) {
		r, err := p.run(ctx, job{Peer: p.String(), Address: s.Address, Group: group, Layout: s.Layout, Cost: cost})
		if err == nil {
			*version = r.Version
		}
		return r.tally(), r.usage(), err
	}}
}

// run lets a process do a job.
func (p peer) run(ctx context.Context, j job) (r result, err error) {
	start := p.command
	if start == nil {
		start = child
	}
	cmd, err := start(ctx, j)
	if err != nil {
		return r, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return r, errors.Join(fmt.Errorf("its process failed: %w: %s", err, lastLine(stderr.String())), ctx.Err())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, fmt.Errorf("its process wrote %q, not a result: %w", lastLine(string(out)), err)
	}
	return r, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
