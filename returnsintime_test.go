package arroyo_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// I8, I11: Run returns in time wherever user code is stuck, with a broker that
// answers, one that is gone, and one that does not answer to what ends a run;
// and says that not all was done.
func TestI8RunReturnsWhereverItIsStuck(t *testing.T) {
	brokers := map[string]func(*memkafka.Broker){
		"answers": func(*memkafka.Broker) {},
		"is gone": (*memkafka.Broker).Down,
		"is mute": func(b *memkafka.Broker) { b.Swallow(kmsg.OffsetCommit); b.Swallow(kmsg.LeaveGroup) },
	}
	for _, where := range []string{"the function that makes the pipeline", "Submit", "Flush", "Close", "a timer", "a worker"} {
		for state, broken := range brokers {
			t.Run(where+", and the broker "+state, func(t *testing.T) {
				inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 20)
					release := make(chan struct{})
					blocks := func(context.Context) error { <-release; return nil }
					var made atomic.Int32
					m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
						h := hook{Forward: noop()}
						switch where {
						case "the function that makes the pipeline":
							// A shared pipeline is made by the test.
							if made.Add(1) > 1 {
								<-release
							}
							h.close = blocks
						case "Flush":
							h.flush = blocks
						case "Close":
							h.close = blocks
						default:
							h.submit = func(ctx context.Context, _ []arroyo.Message[*kgo.Record]) error {
								switch where {
								case "Submit":
									return blocks(ctx)
								case "a timer":
									arroyo.LaneOf(ctx).After(time.Millisecond, blocks)
								case "a worker":
									arroyo.LaneOf(ctx).Go(blocks)
								}
								return nil
							}
						}
						return h
					}, opts, arroyo.DrainTimeout(10*time.Second))
					broker.WaitStable(group, 1)
					time.Sleep(200 * time.Millisecond)
					broken(broker)
					began := time.Now()
					err := m.stop()
					if took := time.Since(began); took > 11*time.Second {
						t.Errorf("Run returned after %v, want at most 11 s", took)
					}
					var left *arroyo.AbandonedError
					if !errors.As(err, &left) || left.Step == "" {
						t.Errorf("Run: %v; want an AbandonedError that names a step", err)
					}
					close(release)
				})
			})
		}
	}
}
