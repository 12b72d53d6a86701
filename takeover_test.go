package arroyo_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// Two members share eight partitions; one vanishes without leaving. After its
// session the other owns all of them and goes on from the committed offsets.
func TestMemberDies(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 8))
		var ledger ledger
		survivor := start(t, broker, ledger.pipeline("survivor"), opts)
		broker.WaitStable(group, 1)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		if n := len(rival.Assigned()); n != 4 {
			t.Fatalf("the rival has %d partitions, want 4", n)
		}
		produce(broker, 800)
		broker.WaitCommitted(group, topic, 400)

		rival.Die()
		died := time.Now()
		broker.WaitStable(group, 1)
		broker.WaitCommitted(group, topic, 800)
		if took := time.Since(died); took < 40*time.Second || took > time.Minute {
			t.Errorf("it took %v until the survivor had caught up, want about its 45 s session", took)
		}
		produce(broker, 80)
		broker.WaitCommitted(group, topic, 880)
		survivor.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
		expectCommitted(t, broker)
	})
}

// A second processor joins and leaves while records flow.
func TestMemberJoinsAndLeaves(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 8))
		var ledger ledger
		first := start(t, broker, ledger.pipeline("first"), opts)
		broker.WaitStable(group, 1)
		produce(broker, 400)

		second := start(t, broker, ledger.pipeline("second"), opts)
		broker.WaitStable(group, 2)
		produce(broker, 400)
		broker.WaitCommitted(group, topic, 800)

		second.shutDown(t)
		broker.WaitStable(group, 1)
		produce(broker, 400)
		broker.WaitCommitted(group, topic, 1200)
		first.shutDown(t)

		ledger.expectAll(t, broker, 0)
		expectCommitted(t, broker)
		shares := make(map[string]int)
		for _, s := range ledger.all() {
			shares[s.by]++
		}
		if shares["second"] != 200 {
			t.Errorf("the second member processed %d records, want half of 400", shares["second"])
		}
	})
}
