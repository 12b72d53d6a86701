// Route reads a topic in which there are three kinds of events, each with a type
// of its own, and sends each kind through its own pipeline.
//
//	go run ./docs/examples/route -brokers localhost:9092
//
// The header "kind" of a record says what it is: an order, a payment or a
// refund. A record of another kind, or of none, is invalid and becomes a dead
// letter; it is never dropped silently.
//
// Orders are stored in batches. Payments are booked one by one, at a bank that
// may be slow: they have a queue, so that they hold up no order while there are
// less than 100 of them. (The queue is no longer than that because a shutdown
// waits until it is empty.) Refunds come in an old format, as "order-17 350".
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Order is the value of a record of the kind "order", as JSON.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Test     bool   `json:"test"`
}

// Payment is the value of a record of the kind "payment", as JSON.
type Payment struct {
	Order string `json:"order"`
	Cents int64  `json:"cents"`
}

// Refund is the value of a record of the kind "refund", as text.
type Refund struct {
	Order string
	Cents int64
}

// Shop is what becomes of events. Its methods may be called at the same time.
type Shop interface {
	StoreOrders(context.Context, []Order) error
	Book(context.Context, Payment) error
	PayBack(context.Context, Refund) error
}

// run hands events to the shop until ctx ends. Then it finishes what has begun,
// commits and leaves the group.
func run(ctx context.Context, shop Shop, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("shop", []string{"events"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RouteByHeader("kind", strategies.Branches[*kgo.Record]{
		"order":   orders(shop),
		"payment": payments(shop),
		"refund":  refunds(shop),
	})
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "events.dead"}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func orders(shop Shop) arroyo.Strategy[*kgo.Record] {
	isReal := func(m arroyo.Message[Order]) bool { return !m.Payload.Test }
	store := func(ctx context.Context, rows []arroyo.Message[Order]) error {
		batch := make([]Order, len(rows))
		for i, row := range rows {
			batch[i] = row.Payload
		}
		return shop.StoreOrders(ctx, batch)
	}
	return strategies.RunTask(strategies.JSON,
		strategies.Filter(isReal,
			strategies.ForEachBatch(100, time.Second, store, strategies.Name("store"))))
}

func payments(shop Shop) arroyo.Strategy[*kgo.Record] {
	book := func(ctx context.Context, m arroyo.Message[Payment]) error { return shop.Book(ctx, m.Payload) }
	return strategies.Queue(100,
		strategies.RunTask(strategies.JSON,
			strategies.ForEach(book, strategies.Name("book"))))
}

func refunds(shop Shop) arroyo.Strategy[*kgo.Record] {
	payBack := func(ctx context.Context, m arroyo.Message[Refund]) error { return shop.PayBack(ctx, m.Payload) }
	return strategies.RunTask(parseRefund,
		strategies.ForEach(payBack, strategies.Name("pay back")))
}

func parseRefund(_ context.Context, m arroyo.Message[*kgo.Record]) (Refund, error) {
	order, amount, _ := strings.Cut(string(m.Payload.Value), " ")
	cents, err := strconv.ParseInt(amount, 10, 64)
	if err != nil {
		return Refund{}, arroyo.Invalid(fmt.Errorf("the amount: %w", err))
	}
	return Refund{order, cents}, nil
}

// printer is a shop that prints.
type printer struct{}

func (printer) StoreOrders(_ context.Context, orders []Order) error {
	fmt.Println("store", orders)
	return nil
}

func (printer) Book(_ context.Context, p Payment) error {
	fmt.Println("book", p)
	return nil
}

func (printer) PayBack(_ context.Context, r Refund) error {
	fmt.Println("pay back", r)
	return nil
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
