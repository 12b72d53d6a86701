// Rebalance writes bookings into a ledger, 100 at a time, or what there is of
// them after a minute. The program is ordinary; look at its test, which asks what
// becomes of a batch when a partition of some of its rows goes to another member
// in the middle of it.
//
//	go run ./docs/examples/rebalance -brokers localhost:9092
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

// Booking is the value of a record, as JSON.
type Booking struct {
	ID      int    `json:"id"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// Ledger is where bookings are written.
type Ledger interface {
	// Write writes bookings, or none of them. One whose ID is there already
	// is not written again: after a crash, or a write that took too long,
	// some come twice.
	Write(ctx context.Context, bookings []Booking) error
}

// run writes bookings into the ledger until ctx ends. Then it writes what is in
// the batch, commits and leaves the group.
func run(ctx context.Context, ledger Ledger, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("ledger", []string{"bookings"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	write := func(ctx context.Context, rows []arroyo.Message[Booking]) error {
		bookings := make([]Booking, len(rows))
		for i, row := range rows {
			bookings[i] = row.Payload
		}
		return ledger.Write(ctx, bookings)
	}
	pipeline := strategies.RunTask(strategies.JSON,
		strategies.ForEachBatch(100, time.Minute, write, strategies.Name("write")))
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

// printer is a ledger that prints.
type printer struct{}

func (printer) Write(_ context.Context, bookings []Booking) error {
	_, err := fmt.Println(bookings)
	return err
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, printer{}, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
