package arroyo_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// A program for a platform that sends signals and asks for its health. The
// first signal makes it finish what has begun; the second one makes it stop.
func ExampleProcessor_Abandon() {
	consumer, err := arroyo.NewConsumer("ingest", []string{"events"},
		arroyo.ClientOptions(kgo.SeedBrokers("localhost:9092")))
	if err != nil {
		log.Fatal(err)
	}
	processor, err := arroyo.NewProcessor(consumer, strategies.Noop[*kgo.Record]())
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/healthz", processor.HealthHandler())
	http.Handle("/status", processor.StatusHandler())
	go func() { log.Fatal(http.ListenAndServe(":8080", nil)) }()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done() // the first signal: Run drains
		again := make(chan os.Signal, 1)
		signal.Notify(again, os.Interrupt, syscall.SIGTERM)
		<-again // the second one: no more waiting
		processor.Abandon()
	}()
	if err := processor.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
