package arroyo_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// lateAcks acks what is produced a while later, on other goroutines.
type lateAcks struct{ n atomic.Int64 }

func (p *lateAcks) Produce(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	time.AfterFunc(50*time.Millisecond, func() {
		p.n.Add(1)
		promise(r, nil)
	})
}

// At the bound of what is in flight the run goes on as soon as something is
// settled, whoever settles it: it does not wait for the next commit.
func TestI10RoomIsSeenAtOnce(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const records = 100
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				for range records {
					produce(broker, 1) // a batch, and a fetch, each
				}
				var producer lateAcks
				m := startMember(t, broker, strategies.Produce(&producer, func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
					return strategies.Outgoing(m, "out", m.Payload.Value), nil
				}), append(slices.Clip(p.opts), kgo.FetchMaxPartitionBytes(1)), arroyo.MaxInFlight(5), arroyo.CommitInterval(time.Hour))
				time.Sleep(time.Minute)
				if n := producer.n.Load(); n != records {
					t.Errorf("%d of %d records are done after a minute", n, records)
				}
				if err := m.stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
