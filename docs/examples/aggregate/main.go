// Aggregate counts page views. Each partition of the topic has its own pipeline,
// which adds up what comes and stores the sums every ten seconds.
//
//	go run ./docs/examples/aggregate -brokers localhost:9092
//
// Views are committed when the sums that they are in are stored, and not before;
// so none is missing after a crash. When a partition goes to another member, or
// the program stops, what was added up by then is stored first.
//
// After a crash some views come again, and must not be counted twice. That is
// easy here, because what comes again of a partition is always the end of what
// was stored of it: sums are stored with the offset of their first view, and
// replace all sums of the partition from this offset on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// View is the value of a record, as JSON.
type View struct {
	Page string `json:"page"`
}

// Counts says how often each page was viewed.
type Counts map[string]int

// Replace stores the counts of a partition's views from the offset first on, in
// place of all that were stored of it for this offset and higher ones. In a
// database that is one transaction:
//
//	DELETE FROM counts WHERE partition = $1 AND first >= $2;
//	INSERT INTO counts (partition, first, page, views) VALUES ...;
type Replace func(ctx context.Context, p arroyo.Partition, first int64, counts Counts) error

// run counts views until ctx ends. Then it stores what it has, commits and
// leaves the group.
func run(ctx context.Context, replace Replace, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("views", []string{"views"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	// It is called each time that a partition is assigned.
	pipeline := func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
		return strategies.RunTask(strategies.JSON,
			strategies.Reduce(10_000, 10*time.Second, begin, add,
				strategies.ForEach(replace.counts))), nil
	}
	processor, err := arroyo.NewPartitionedProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "views.dead"}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func begin() Counts { return make(Counts) }

func add(counts Counts, m arroyo.Message[View]) (Counts, error) {
	counts[m.Payload.Page]++
	return counts, nil
}

// counts stores what was added up of a partition since the last time.
func (replace Replace) counts(ctx context.Context, m arroyo.Message[Counts]) error {
	first, _, _ := m.Offsets(m.Epoch())
	return replace(ctx, m.Epoch().Partition, first, m.Payload)
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	print := func(_ context.Context, p arroyo.Partition, first int64, counts Counts) error {
		_, err := fmt.Println(p, "from", first, "on:", counts)
		return err
	}
	if err := run(ctx, print, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
