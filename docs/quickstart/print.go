package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// printer writes lines, each with the time since the program began.
type printer struct {
	mu    sync.Mutex
	w     io.Writer
	began time.Time
}

func newPrinter(w io.Writer) *printer { return &printer{w: w, began: time.Now()} }

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "%4.1fs  %s\n", time.Since(p.began).Seconds(), fmt.Sprintf(format, args...))
}

func list(partitions []int32) string {
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

// warnings is the slog.Handler of a member's processor: it prints warnings and
// errors.
type warnings struct{ member *member }

func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler               { return w }
func (w *warnings) WithGroup(string) slog.Handler                    { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	var attrs []string
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a.String())
		return true
	})
	w.member.out.line("%s: %s: %s", w.member.name, r.Message, strings.Join(attrs, " "))
	return nil
}
