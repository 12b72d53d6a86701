// Dedup handles deliveries that may have been sent twice, each once: a sender
// that had no answer has sent again, so the same ID comes a second time, a
// little later and with the same key.
//
//	go run ./docs/examples/dedup -brokers localhost:9092
//
// It does that with a strategy of its own, in dedup.go. That it keeps what
// strategies promise is one test, in dedup_test.go.
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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Delivery is the value of a record, as JSON.
type Delivery struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Handle is what is done with a delivery.
type Handle func(context.Context, Delivery) error

// run handles deliveries until ctx ends.
func run(ctx context.Context, handle Handle, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("deliveries", []string{"deliveries"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(strategies.JSON,
		newDedup(10_000, deliveryID,
			strategies.ForEach(func(ctx context.Context, m arroyo.Message[Delivery]) error {
				return handle(ctx, m.Payload)
			}, strategies.Name("handle"))))
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func deliveryID(m arroyo.Message[Delivery]) string { return m.Payload.ID }

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	print := func(_ context.Context, d Delivery) error {
		_, err := fmt.Println(d.ID, d.Text)
		return err
	}
	if err := run(ctx, print, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
