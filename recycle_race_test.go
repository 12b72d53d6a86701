//go:build race

package arroyo_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A value that is kept beyond the record's settlement shows under the race
// detector.
func TestRecycledRecordsArePoisoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		broker.ProduceRecords(numbered(0, 10)...)
		var kept [][]byte
		m := startRecycling(t, broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			kept = append(kept, m.Payload.Value, m.Payload.Key, m.Payload.Headers[0].Value)
			return nil
		}))
		time.Sleep(time.Second)
		m.shutDown(t)
		if len(kept) != 30 {
			t.Fatalf("%d values, want 30", len(kept))
		}
		for _, b := range kept {
			for _, c := range b {
				if c != 0xDB {
					t.Fatalf("a recycled record still has %q", b)
				}
			}
		}
	})
}
