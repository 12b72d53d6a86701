// Eventloop handles each partition of a topic on a goroutine of its own, with a
// loop over the events of an arroyo.Consumer instead of a pipeline. So one sees
// what Arroyo's Processor does: queues with a bound, partitions that are given
// up in good order while others go on, partitions that are lost, and an end.
//
//	go run ./docs/examples/eventloop -brokers localhost:9092 -topic events
//
// loop.go has the loop, worker.go what goes on for each partition. A simpler
// loop, which does everything on one goroutine, is in docs/loop.
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
)

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	topic := flag.String("topic", "events", "topic to read")
	group := flag.String("group", "eventloop", "consumer group")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	consumer, err := arroyo.NewConsumer(*group, []string{*topic},
		arroyo.ClientOptions(kgo.SeedBrokers(strings.Split(*brokers, ",")...)))
	if err != nil {
		log.Fatal(err)
	}
	err = loop(ctx, consumer, func(_ context.Context, r *kgo.Record) error {
		_, err := fmt.Printf("%s/%d %d: %s\n", r.Topic, r.Partition, r.Offset, r.Value)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
