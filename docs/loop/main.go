// Command loop reads a topic with a hand-written loop over the events of an
// arroyo.Consumer; docs/events.md explains them.
//
//	go run ./docs/loop -brokers localhost:9092 -topic events -group loop
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	topic := flag.String("topic", "events", "topic to read")
	group := flag.String("group", "loop", "consumer group")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	consumer, err := arroyo.NewConsumer(*group, []string{*topic},
		arroyo.ClientOptions(kgo.SeedBrokers(strings.Split(*brokers, ",")...)))
	if err != nil {
		log.Fatal(err)
	}
	err = loop(ctx, consumer, func(r *kgo.Record) error {
		_, err := fmt.Printf("%s/%d %d: %s\n", r.Topic, r.Partition, r.Offset, r.Value)
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
