package arroyo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// A static leader gets what it had when it comes back, and the group is not
// balanced. If the topic grew before that, and the leader's own share is the
// same with the new partitions as without, they are read all the same.
func TestI10TopicGrewBeforeAStaticLeaderCameBack(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			for range 10 { // a sticky balancer's shares vary
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 1))
					var l ledger
					start := func(id string) *member {
						return startMember(t, broker, l.by(id), append([]kgo.Opt{kgo.InstanceID(id)}, p.opts...))
					}
					a, b := start("a"), start("b")
					broker.WaitStable(group, 2)
					// Other than Kafka, kfake balances the group when static members
					// come back, but only once when all do. After that a leads, most
					// of the time: it joined last.
					a.shutDown(t)
					b.shutDown(t)
					b = start("b")
					time.Sleep(time.Second)
					a = start("a")
					time.Sleep(20 * time.Second)
					b.shutDown(t)
					start("b")
					time.Sleep(20 * time.Second)
					broker.AddPartitions(topic, 2)
					produce(broker, 10)
					a.shutDown(t)
					start("a")
					time.Sleep(6 * time.Minute) // kgo looks at topics every five
					l.expectAll(t, broker, 0)
				})
			}
		})
	}
}
