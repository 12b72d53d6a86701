package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

func main() {
	bench.ServeIfBroker()
	short := flag.Bool("short", false, "few records and one round, to see whether it works")
	rounds := flag.Int("rounds", 5, "`rounds` that count, at least 1; the matrix has at most 3")
	rust := flag.Bool("rust", false, "with Sentry's Arroyo for Rust; its first build takes some minutes")
	docs := flag.String("docs", "docs", "the `folder` of performance.md and performance.svg")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, plan{short: *short, rust: *rust, rounds: max(1, *rounds), log: os.Stderr}, *docs); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, p plan, docs string) error {
	if p.short {
		p.rounds = 1
	}
	page := filepath.Join(docs, "performance.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("run it in the root of the repository: %w", err)
	}
	if _, err := splice(string(text), ""); err != nil { // before it measures for minutes
		return fmt.Errorf("%s: %w", page, err)
	}
	r, err := p.measure(ctx)
	if err != nil {
		return err
	}
	r.Date, r.Machine = time.Now(), thisMachine()
	replaced, err := splice(string(text), r.markdown())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	if err := os.WriteFile(page, []byte(replaced), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(docs, "performance.svg"), []byte(r.chart().svg()), 0o644)
}
