package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/twmb/franz-go/pkg/kgo"
)

type Event struct {
	Kind string `json:"kind"`
	User int64  `json:"user"`
}

func wanted(m arroyo.Message[Event]) bool { return m.Payload.Kind != "heartbeat" }

func insert(ctx context.Context, rows []arroyo.Message[Event]) error {
	fmt.Printf("insert %d rows\n", len(rows)) // into your database
	return nil
}

func ingest(ctx context.Context, brokers ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("ingest", []string{"events"},
		arroyo.ClientOptions(brokers...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(strategies.JSON, // Message[*kgo.Record] -> Event
		strategies.Filter(wanted,
			strategies.ForEachBatch(1000, time.Second, insert)))
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		return err
	}
	return processor.Run(ctx) // until ctx ends; then it drains, commits and leaves the group
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := ingest(ctx, kgo.SeedBrokers("localhost:9092")); err != nil {
		log.Fatal(err)
	}
}
