package migrating

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// RunLatest writes the latest event of each user to the topic latest, every ten
// seconds, until ctx ends.
func RunLatest(ctx context.Context, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("latest", []string{"events"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	pipeline := strategies.RunTask(strategies.JSON,
		newLatest(10*time.Second,
			strategies.Produce(consumer.Client(), output)))
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func output(_ context.Context, m arroyo.Message[Event]) (*kgo.Record, error) {
	value, err := json.Marshal(m.Payload)
	if err != nil {
		return nil, arroyo.Invalid(err)
	}
	return &kgo.Record{Topic: "latest", Key: strconv.AppendInt(nil, m.Payload.User, 10), Value: value}, nil
}
