package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// printer writes lines, each with the time since the program began.
type printer struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
	moved *move // what is to be printed before the next line
}

// move is what becomes one line: partitions that a member got, or gave up.
type move struct {
	at         time.Time
	events     *events
	verb       string
	partitions []int64
}

func newPrinter(w io.Writer) *printer { return &printer{w: w, began: time.Now()} }

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printMove()
	p.print(time.Now(), format, args...)
}

// printMove and print are called with mu held.
func (p *printer) printMove() {
	if m := p.moved; m != nil {
		p.moved = nil
		slices.Sort(m.partitions)
		held := slices.Sorted(maps.Keys(m.events.held))
		has := ""
		if !slices.Equal(held, m.partitions) {
			has = ", has " + list(held) + " now"
		}
		p.print(m.at, "%s %s partitions %s%s", m.events.member.name, m.verb, list(m.partitions), has)
	}
}

func (p *printer) print(at time.Time, format string, args ...any) {
	fmt.Fprintf(p.w, "%4.1fs  %s\n", at.Sub(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func list(partitions []int64) string {
	if len(partitions) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint(partitions), "[]")
}

// showProgress prints every second what the members have stored, until stop.
func (p *printer) showProgress(members ...*member) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		before := make([]progress, len(members))
		for ctx.Err() == nil {
			pause(ctx, time.Second)
			p.progress(members, before)
		}
	})
	return func() { cancel(); running.Wait() }
}

type progress struct{ stored, batches int64 }

func (p *printer) progress(members []*member, before []progress) {
	var parts []string
	for i, m := range members {
		now := progress{m.stored.Load(), m.batches.Load()}
		if now.batches > before[i].batches {
			parts = append(parts, fmt.Sprintf("%s stored %d orders (batches: %d)",
				m.name, now.stored-before[i].stored, now.batches-before[i].batches))
		}
		before[i] = now
	}
	if len(parts) > 0 {
		p.line("%s", strings.Join(parts, ", "))
	}
}

// events is the slog.Handler of a member's processor. It turns the log records
// of one rebalance into one line, and prints warnings and errors as they are.
type events struct {
	member *member
	held   map[int64]bool // partitions; guarded by printer.mu
}

func (e *events) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (e *events) WithAttrs([]slog.Attr) slog.Handler               { return e }
func (e *events) WithGroup(string) slog.Handler                    { return e }

func (e *events) Handle(_ context.Context, r slog.Record) error {
	var (
		partition int64
		attrs     []string
	)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "partition" {
			partition = a.Value.Int64()
		}
		attrs = append(attrs, a.String())
		return true
	})
	switch {
	case r.Message == "partition assigned":
		e.moved("got", partition, true)
	case r.Message == "partition revoked":
		e.moved("gave up", partition, false)
	case r.Message == "partition lost":
		e.moved("lost", partition, false)
	case r.Level >= slog.LevelWarn:
		e.member.out.line("%s: %s: %s", e.member.name, r.Message, strings.Join(attrs, " "))
	}
	return nil
}

func (e *events) moved(verb string, partition int64, has bool) {
	p := e.member.out
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.moved; m != nil && (m.events != e || m.verb != verb) {
		p.printMove()
	}
	if p.moved == nil {
		p.moved = &move{at: time.Now(), events: e, verb: verb}
	}
	p.moved.partitions = append(p.moved.partitions, partition)
	if has {
		e.held[partition] = true
		e.member.gotPartitions()
	} else {
		delete(e.held, partition)
	}
}
