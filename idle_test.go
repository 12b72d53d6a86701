//go:build !race

// What things cost is not measured under the race detector.

package arroyo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// idleHour lets a processor that has read four partitions to their ends wait for
// an hour, in which it fetches 14,400 times.
func idleHour(t *testing.T, opts []kgo.Opt) {
	broker := memkafka.New(t, memkafka.Topic(topic, 4))
	m := startMember(t, broker, strategies.Noop[*kgo.Record](), opts)
	produce(broker, 100)
	broker.WaitCaughtUp(group, topic)
	time.Sleep(time.Hour)
	produce(broker, 1)
	broker.WaitCaughtUp(group, topic)
	m.shutDown(t)
}

// An idle hour costs next to nothing in a bubble: a fifth of a second on a quiet
// machine. The limit is wider, and for the best of a few attempts, because the
// machine may be busy with other things.
func TestAnIdleHourIsCheap(t *testing.T) {
	const limit = time.Second
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			best := time.Hour
			for range 10 {
				began := time.Now()
				synctest.Test(t, func(t *testing.T) { idleHour(t, p.opts) })
				if best = min(best, time.Since(began)); best < limit {
					break
				}
			}
			t.Logf("took %v", best)
			if best > limit {
				t.Errorf("took %v of real time, want at most %v", best, limit)
			}
		})
	}
}
