// Quickstart is the program to run first:
//
//	go run ./docs/quickstart
//
// It starts a Kafka broker in memory, produces orders for a few seconds, and
// stores them with Arroyo. On the way a second member joins the consumer group
// and leaves it again. Press Ctrl-C at any time: what has begun is finished and
// committed. With -brokers it does the same on a real Kafka:
//
//	go run ./docs/quickstart -brokers localhost:9092
//
// What consuming takes is in this file: process, and the two functions that it
// gives to the pipeline. The rest sets the scene: order.go has the orders and
// who produces them, store.go where they are stored, member.go the members of
// the group, kafka.go the broker, print.go and report.go what you see.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// process consumes the topic as a member of the group until ctx ends. Then it
// finishes the batch in hand, commits, and leaves the group.
func process(ctx context.Context, kafka *cluster, m *member) error {
	// The options are franz-go's own: brokers, TLS, SASL and the rest.
	consumer, err := arroyo.NewConsumer(kafka.group, []string{kafka.topic},
		arroyo.ClientOptions(kafka.clientOptions()...))
	if err != nil {
		return err
	}

	// Records are decoded, cancelled orders are dropped, the others are stored
	// 100 at a time, or what there is of them after 250 ms.
	pipeline := strategies.RunTask(strategies.JSON,
		strategies.Filter(m.wants,
			strategies.ForEachBatch(100, 250*time.Millisecond, m.insert)))

	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.Logger(m.log), arroyo.Hooks(m))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

// wants tells Filter which orders to hand on. The others count as done.
func (m *member) wants(order arroyo.Message[Order]) bool {
	if order.Payload.Status == cancelled {
		m.filtered.Add(1)
		return false
	}
	return true
}

// insert stores a batch. Its orders are committed once it has returned nil; an
// error ends the run, and whoever gets the partitions next reads them again.
// That may also happen after a crash, so the store is idempotent.
func (m *member) insert(_ context.Context, batch []arroyo.Message[Order]) error {
	orders := make([]Order, len(batch))
	for i, row := range batch {
		orders[i] = row.Payload
	}
	added := m.store.upsert(orders)
	m.stored.Add(int64(added))
	m.duplicates.Add(int64(len(orders) - added))
	m.batches.Add(1)
	return nil
}

func main() {
	cfg := config{orders: 1800, perSecond: 300}
	var brokers string
	flag.StringVar(&brokers, "brokers", "", "run on the Kafka at these addresses, `host:port[,host:port]`, instead of one in memory")
	flag.StringVar(&cfg.topic, "topic", "orders", "the `name` of the topic, which is created if it is missing")
	flag.StringVar(&cfg.group, "group", "quickstart", "the `name` of the consumer group")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "quickstart: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if brokers != "" {
		cfg.brokers = strings.Split(brokers, ",")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if _, err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

type config struct {
	brokers   []string // none: a broker in memory
	topic     string
	group     string
	orders    int // how many to produce
	perSecond int
}

// run is the story that the program tells. When ctx ends it skips to the end.
func run(ctx context.Context, cfg config, w io.Writer) (*report, error) {
	out := newPrinter(w)
	kafka, err := connect(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // interrupted before anything began
		}
		return nil, err
	}
	defer kafka.close()
	out.line("topic %q, %d partitions, on %s", kafka.topic, kafka.partitions, kafka.name)

	// The story ends early when ctx does, and when something fails.
	story, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() {
		out.line("interrupted: finishing what has begun")
		end()
	})()
	var (
		store  = newStore()
		first  = newMember("member 1", store, out)
		second = newMember("member 2", store, out)
		shop   = newProducer(kafka, cfg)
	)
	stopProgress := out.showProgress(first, second)

	first.join(story, kafka, end)
	wait(story, first.assigned)
	shop.open(story, end)
	pause(story, 2*time.Second)

	second.join(story, kafka, end)
	wait(story, second.assigned)
	pause(story, 2*time.Second)
	secondErr := second.leave()
	shopErr := shop.close()

	waitErr := kafka.waitCaughtUp(story)
	firstErr := first.leave()
	stopProgress()

	result, reportErr := newReport(kafka, store, shop, first, second)
	out.report(result)
	if err := errors.Join(firstErr, secondErr, shopErr); err != nil {
		return nil, err
	}
	return result, errors.Join(waitErr, reportErr)
}

// wait returns when done is closed or ctx ends.
func wait(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
