package arroyo_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A kgo client that somebody else closes answers every poll at once: the run
// loop does not spin, but ends with an error that says so.
func TestClientClosedByOthers(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		consumer := newConsumer(t, broker, opts...)
		processor, err := arroyo.NewProcessor(consumer, strategies.Noop[*kgo.Record](), quiet)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(t.Context()) }()
		broker.WaitStable(group, 1)
		produce(broker, 10)
		broker.WaitCommitted(group, topic, 10)
		consumer.Client().Close()
		began := time.Now()
		err = <-ended
		if !errors.Is(err, arroyo.ErrClosed) || !strings.Contains(err.Error(), "closed by others") || time.Since(began) > 30*time.Second {
			t.Errorf("Run: %v after %v", err, time.Since(began))
		}
	})
}
