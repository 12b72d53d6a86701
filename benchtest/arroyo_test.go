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
		stop := startUsage()
		complete := make(chan struct{})
		pipeline := strategies.RunTask(decode,
			strategies.Filter(func(m arroyo.Message[uint64]) bool { return wanted(m.Payload) },
				last(func(v uint64) {
					t.add(v)
					if t.records == s.records {
						close(complete)
					}
				})))
		consumer, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(s.options()...))
		if err != nil {
			return t, used, err
		}
		processor, err := arroyo.NewProcessor(consumer, pipeline, arroyo.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return t, used, errors.Join(err, consumer.Close())
		}
		running, cancel := context.WithCancel(ctx)
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(running) }()
		select {
		case <-complete:
			used = stop()
			cancel()
			return t, used, <-ended
		case err := <-ended:
			return t, used, errors.Join(errors.New("the run ended before the last record"), ctx.Err(), err)
		}
	}
}

func decode(_ context.Context, m arroyo.Message[*kgo.Record]) (uint64, error) {
	return binary.BigEndian.Uint64(m.Payload.Value), nil
}
