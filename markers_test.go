package arroyo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// Limits of dead letters are looked at while a lane meets the markers of
// transactions between the records of the same span. They count for nothing.
func TestMarkersWhileLettersAreJudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1), memkafka.Topic("dead", 1))
		for range 10 {
			broker.ProduceTransaction(topic, "bad", "bad", "good") // and a marker
		}
		m := startMember(t, broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			time.Sleep(300 * time.Millisecond)
			if string(m.Payload.Value) == "bad" {
				return arroyo.Invalid(errors.New("bad"))
			}
			return nil
		}), nil, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead", MaxConsecutive: 2}))
		broker.WaitCaughtUp(group, topic)
		m.shutDown(t)
		if n := len(broker.Records("dead")); n != 20 {
			t.Errorf("%d dead letters, want 20", n)
		}
	})
}
