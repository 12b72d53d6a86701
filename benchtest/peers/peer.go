package main

import (
	"context"
	"encoding/binary"
	"os/exec"
	"runtime/debug"
	"strings"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const (
	defaults = "defaults"
	tuned    = "tuned"
)

// peer is a library that reads a topic, in one of its variants.
type peer struct {
	name    string
	variant string
	module  string // of Go's libraries, whose version is wanted

	// read is what a Go library does, in a process of its own.
	read func(context.Context, job) (bench.Tally, bench.Usage, error)
	// command is for the others. It writes what it measured as JSON.
	command func(context.Context, job) (*exec.Cmd, error)
	// slow is true if it reads a fifth of the records, so as to take about as
	// long as the others.
	slow bool
	// noWork is true if it cannot do work that costs anything.
	noWork bool
}

func (p peer) String() string { return strings.TrimSpace(p.name + " " + p.variant) }

// goPeers returns what is compiled in. The first one is what the others are
// compared with.
func goPeers() (all []peer) {
	all = append(all, ours()...)
	all = append(all, saramas()...)
	all = append(all, kafkaGos()...)
	all = append(all, watermills()...)
	return append(all, confluents()...)
}

// job is what a peer has to do.
type job struct {
	Peer    string // its String
	Address string // of the broker
	Group   string
	Layout  bench.Layout // of the topic
	Cost    bench.Cost   // of the work on a record
}

func (j job) source() bench.Source { return bench.Source{Address: j.Address, Layout: j.Layout} }

// work decodes a value and does what is to be done with it.
func (j job) work(value []byte) (v uint64) {
	v = binary.BigEndian.Uint64(value)
	if j.Cost != bench.None {
		j.Cost.Do(v)
	}
	return v
}

// moduleVersion returns that of a module that is compiled in.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}
