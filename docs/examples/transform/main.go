// Transform turns lines of a log into JSON and sorts them by how bad they are:
// it reads the topic logs, whose lines are like "error disk full", and writes to
// the topics logs.info, logs.warning and logs.error.
//
//	go run ./docs/examples/transform -brokers localhost:9092
//
// An output has the key, the headers and the timestamp of its line, so the
// lines of a host, which is the key, stay in order. A line is committed once the
// brokers have acked what was made of it. Lines of the level debug are dropped;
// others are dead letters.
package main

import (
	"context"
	"encoding/json"
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

// Line is the value of an output, as JSON.
type Line struct {
	Host  string `json:"host"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

// run sorts lines until ctx ends. Then it waits for what is on its way to the
// brokers, commits and leaves the group.
func run(ctx context.Context, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("transform", []string{"logs"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(parse,
		strategies.Produce(consumer.Client(), output))
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "logs.dead"}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func parse(_ context.Context, m arroyo.Message[*kgo.Record]) (Line, error) {
	level, text, _ := strings.Cut(string(m.Payload.Value), " ")
	switch level {
	case "info", "warning", "error":
		return Line{Host: string(m.Payload.Key), Level: level, Text: text}, nil
	case "debug":
		return Line{}, arroyo.Drop
	}
	return Line{}, arroyo.Invalid(fmt.Errorf("%q is no level", level))
}

// output makes the record that is produced for a line, and chooses its topic.
func output(_ context.Context, m arroyo.Message[Line]) (*kgo.Record, error) {
	value, err := json.Marshal(m.Payload)
	if err != nil {
		return nil, arroyo.Invalid(err)
	}
	return strategies.Outgoing(m, "logs."+m.Payload.Level, value), nil
}

func main() {
	brokers := flag.String("brokers", "localhost:9092", "comma-separated host:port")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, kgo.SeedBrokers(strings.Split(*brokers, ",")...)); err != nil {
		log.Fatal(err)
	}
}
