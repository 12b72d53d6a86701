package migrating

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

type Event struct {
	Kind string `json:"kind"`
	User int64  `json:"user"`
	Page string `json:"page"`
}

// Database is where events go.
type Database interface {
	// Insert writes rows. One that cannot be written is rejected by itself,
	// with rows[i].Reject(err).
	Insert(ctx context.Context, rows []arroyo.Message[Event]) error
}

// Run reads events and inserts them in batches, until ctx ends.
func Run(ctx context.Context, db Database, healthFile string, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("ingest", []string{"events"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.Healthcheck(healthFile, time.Second,
		strategies.RunTask(strategies.JSON, // what does not decode is a dead letter
			strategies.Filter(wanted,
				strategies.ForEachBatch(500, 2*time.Second, db.Insert))))
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "events.dead", MaxRatio: 0.1}))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func wanted(m arroyo.Message[Event]) bool { return m.Payload.Kind != "heartbeat" }
