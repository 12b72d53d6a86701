// Command replay brings dead letters back: it reads a topic of them and produces
// the records that they were to the topics and partitions that they came from,
// without the headers that tell of it. docs/bad-messages.md says when to use it.
//
//	go run ./docs/replay -brokers localhost:9092 -from events.dead -dry-run
//	go run ./docs/replay -brokers localhost:9092 -from events.dead -reason 'no such user'
//
// It ends when it has replayed what was there when it began. What is not a dead
// letter, or does not match, is left in the topic; the group's offset passes it,
// so that another choice needs another -group.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

// run is main. The options are for tests.
func run(ctx context.Context, args []string, out io.Writer, opts ...kgo.Opt) error {
	r := &replayer{out: out}
	flags := flag.NewFlagSet("replay", flag.ContinueOnError)
	flags.SetOutput(out)
	brokers := flags.String("brokers", "localhost:9092", "comma-separated host:port")
	reason := flags.String("reason", "", "regular expression: replay only what was rejected for such a reason")
	flags.StringVar(&r.from, "from", "", "topic of dead letters (required)")
	flags.StringVar(&r.topic, "topic", "", "topic for letters that do not tell theirs, as those of Sentry's Arroyo")
	flags.StringVar(&r.group, "group", "replay", "consumer group, whose offsets say what was replayed")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print what would be replayed, and neither produce nor commit")
	flags.BoolVar(&r.fresh, "now", false, "give the records the time of now, for topics that delete what is old")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if r.from == "" {
		return fmt.Errorf("-from is missing: name the topic of dead letters")
	}
	if *reason != "" {
		var err error
		if r.reason, err = regexp.Compile(*reason); err != nil {
			return fmt.Errorf("-reason: %w", err)
		}
	}
	err := r.run(ctx, append([]kgo.Opt{kgo.SeedBrokers(strings.Split(*brokers, ",")...)}, opts...)...)
	did := "replayed"
	if r.dryRun {
		did = "would be replayed"
	}
	fmt.Fprintf(out, "%d %s, %d passed over for their reasons, %d left\n", r.replayed, did, r.passedOver, r.unreadable)
	return err
}
