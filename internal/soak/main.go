// Command soak runs processors for a long time against a real Kafka, one under
// each protocol, while other members come, leave and are killed, the network is
// cut and the broker is restarted. Each minute it prints what the processors
// need and how far behind they are, and it fails if that grows.
//
//	internal/realkafka/fetch
//	go run ./internal/soak -for 8h
//
// It needs about a third of a core at the default rate. The broker keeps a few
// minutes of records only, so that hours need no more of the disk than that.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

// settings are the flags.
type settings struct {
	length  time.Duration
	rate    int // records a second
	warmUp  time.Duration
	restart time.Duration // between two of the broker
	verbose bool
}

func main() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	var s settings
	flag.DurationVar(&s.length, "for", 20*time.Minute, "how long to run")
	flag.IntVar(&s.rate, "rate", 1000, "records a `second`, which every group reads")
	flag.DurationVar(&s.warmUp, "warmup", 3*time.Minute, "what is not judged, from the start")
	flag.DurationVar(&s.restart, "restart", 5*time.Minute, "between two restarts of the broker; 0: none")
	flag.BoolVar(&s.verbose, "v", false, "also print what happens to the members")
	flag.Parse()
	if flag.NArg() > 0 || s.rate <= 0 || s.length <= 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	kafka, err := realkafka.Open(ctx, realkafka.Options{Config: map[string]string{
		// Under KIP-848 these are the broker's; the defaults are 45 s and 5 s.
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.session.timeout.ms":        fmt.Sprint(session.Milliseconds()),
		"group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.heartbeat.interval.ms":     "1000",
		"log.retention.check.interval.ms":          "30000",
	}})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := kafka.Close(); err == nil {
			err = closeErr
		}
	}()
	w, err := newWorld(ctx, kafka, s)
	if err != nil {
		return err
	}
	defer w.close()
	return w.run(ctx)
}
