// Command kafka runs a real Apache Kafka in the foreground, for trying the
// examples:
//
//	internal/realkafka/fetch
//	go run ./internal/realkafka/cmd/kafka -config auto.create.topics.enable=true
//
// It prints "ready" and the address when the broker serves, and ends on SIGINT
// or SIGTERM. The data is gone then.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

func main() {
	config := make(map[string]string)
	flag.Func("config", "a property of the broker, `name=value`; may be repeated", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want name=value")
		}
		config[name] = value
		return nil
	})
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, realkafka.Options{Config: config}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run serves until the context ends.
func run(ctx context.Context, o realkafka.Options) (err error) {
	kafka, err := realkafka.Open(ctx, o)
	if ctx.Err() != nil && err != nil {
		return nil // told to end before it was ready
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kafka.Close()) }()
	fmt.Println("ready", strings.Join(kafka.Brokers(), ","))
	return kafka.Wait(ctx)
}
