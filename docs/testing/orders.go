// Package orders is the consumer that docs/testing.md shows how to test.
package orders

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

type Order struct {
	ID   int  `json:"id"`
	Paid bool `json:"paid"`
}

// Insert puts orders into a database.
type Insert func(context.Context, []Order) error

// Run reads the topic orders as a member of the group billing, until ctx ends.
func Run(ctx context.Context, insert Insert, client ...kgo.Opt) error {
	consumer, err := arroyo.NewConsumer("billing", []string{"orders"}, arroyo.ClientOptions(client...))
	if err != nil {
		return err
	}
	processor, err := arroyo.NewProcessor(consumer,
		strategies.RunTask(decode,
			strategies.Filter(paid,
				strategies.ForEachBatch(100, time.Second, insert.batch, strategies.Name("insert")))))
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func decode(_ context.Context, m arroyo.Message[*kgo.Record]) (Order, error) {
	var o Order
	if err := json.Unmarshal(m.Payload.Value, &o); err != nil {
		return o, arroyo.Invalid(err)
	}
	if o.ID <= 0 {
		return o, arroyo.Invalid(errors.New("an order without an ID"))
	}
	return o, nil
}

func paid(m arroyo.Message[Order]) bool { return m.Payload.Paid }

func (insert Insert) batch(ctx context.Context, rows []arroyo.Message[Order]) error {
	orders := make([]Order, len(rows))
	for i, row := range rows {
		orders[i] = row.Payload
	}
	return insert(ctx, orders)
}
