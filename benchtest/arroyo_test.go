package benchtest

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// ending makes a pipeline's last step, which calls add for each message.
type ending func(add func(v uint64)) arroyo.Strategy[uint64]

func forEach(add func(v uint64)) arroyo.Strategy[uint64] {
	return strategies.ForEach(func(_ context.Context, m arroyo.Message[uint64]) error {
		add(m.Payload)
		return nil
	})
}

func forEachBatch(add func(v uint64)) arroyo.Strategy[uint64] {
	return strategies.ForEachBatch(1000, 100*time.Millisecond, func(_ context.Context, rows []arroyo.Message[uint64]) error {
		for i := range rows {
			add(rows[i].Payload)
		}
		return nil
	})
}

// readArroyo returns a reader that is a Processor with three steps.
func readArroyo(last ending) reader {
	return func(ctx context.Context, s source, group string) (t tally, used usage, err error) {
		meter := startMeter(s)
		complete := make(chan struct{})
		pipeline := strategies.RunTask(decode,
			strategies.Filter(func(m arroyo.Message[uint64]) bool { return wanted(m.Payload) },
				last(func(v uint64) {
					switch t.add(v); t.records {
					case 1:
						meter.first()
					case s.records:
						close(complete)
					}
				})))
		consumer, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(s.options()...))
		if err != nil {
			return t, used, err
		}
		processor, err := arroyo.NewProcessor(consumer, pipeline, silent)
		if err != nil {
			return t, used, errors.Join(err, consumer.Close())
		}
		used, err = runUntil(ctx, processor, complete, meter)
		return t, used, err
	}
}

var silent = arroyo.Logger(slog.New(slog.DiscardHandler))

// runUntil runs a processor until its pipeline has all records, and returns
// what was used until then.
func runUntil(ctx context.Context, p *arroyo.Processor, complete <-chan struct{}, meter *meter) (used usage, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	select {
	case <-complete:
		used = meter.stop()
		cancel()
		return used, <-ended
	case err := <-ended:
		return used, errors.Join(errors.New("the run ended before the last record"), ctx.Err(), err)
	}
}

func decode(_ context.Context, m arroyo.Message[*kgo.Record]) (uint64, error) {
	return binary.BigEndian.Uint64(m.Payload.Value), nil
}
