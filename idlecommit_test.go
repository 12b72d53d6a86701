package arroyo_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// I2: a partition of which nobody knows yet where it goes on has no position,
// and nothing is committed for it, also when commits of idle partitions are
// due: that would send the group back to where the log begins.
func TestI2NoCommitWithoutAPosition(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 20)
		var ledger ledger
		m := start(t, broker, ledger.pipeline("m"), opts)
		broker.WaitCommitted(group, topic, 20)
		m.shutDown(t)
		fault := broker.Fail(kmsg.OffsetFetch, kerr.UnknownServerError, memkafka.OnTopic(topic))
		m = start(t, broker, ledger.pipeline("m"), opts)
		broker.WaitStable(group, 1)
		time.Sleep(2 * time.Hour)
		if got := broker.Committed(group, topic)[0]; got != 20 {
			t.Errorf("committed %d, want it as it was", got)
		}
		for _, p := range m.Status().Partitions {
			if p.Position != -1 || p.Watermark != -1 || p.State != arroyo.PartitionStarting {
				t.Errorf("%+v; want it to be starting, at no position", p)
			}
		}
		fault.Heal()
		produce(broker, 20)
		broker.WaitCommitted(group, topic, 40)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
	})
}

// CommitEvery counts on while a commit is under way, so that what became due
// meanwhile does not wait for the interval.
func TestCommitEveryWhileCommitsAreSlow(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		var ledger ledger
		m := start(t, broker, ledger.slowPipeline("m", 10*time.Millisecond), opts, arroyo.CommitInterval(time.Hour), arroyo.CommitEvery(10))
		broker.WaitStable(group, 1)
		synctest.Wait() // where the group begins is committed
		broker.Delay(kmsg.OffsetCommit, time.Second)
		began := time.Now()
		produce(broker, 45)
		// The first commit has 10 to 19 of them, as they were fetched.
		broker.WaitCommitted(group, topic, 45)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("45 records were committed after %v, want two commits of a second", took)
		}
		m.shutDown(t)
	})
}
