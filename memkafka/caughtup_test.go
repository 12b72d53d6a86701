package memkafka_test

import (
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func readCommitted() []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumerGroup("ingest"), kgo.ConsumeTopics("events"),
		kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	}
}

func TestWaitCaughtUp(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		broker.WaitCaughtUp("ingest", "events") // nothing to read: no group is needed
		broker.Produce("events", "a", "b")
		memkafka.Start(t, consume(newClient(t, broker, readCommitted()...)))
		broker.WaitCaughtUp("ingest", "events")
		if got := broker.Committed("ingest", "events"); !maps.Equal(got, map[int32]int64{0: 1, 1: 1}) {
			t.Errorf("committed %v", got)
		}
		broker.Produce("events", "c", "d", "e")
		broker.WaitCaughtUp("ingest", "events")
		if got := broker.Committed("ingest", "events"); !maps.Equal(got, broker.End("events")) {
			t.Errorf("committed %v of %v", got, broker.End("events"))
		}
	})
}

// The log's end is not where a consumer can get to.
func TestWaitCaughtUpBelowTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		produce func(*memkafka.Broker)
		want    map[int32]int64 // what is committed
	}{
		"committed transaction at the end": {
			func(b *memkafka.Broker) { b.ProduceTransaction("events", "a", "b") }, map[int32]int64{0: 1, 1: 1}},
		"aborted transaction at the end": {
			func(b *memkafka.Broker) { b.Produce("events", "a", "b"); b.ProduceAborted("events", "c", "d") }, map[int32]int64{0: 1, 1: 1}},
		"nothing but an aborted transaction": {
			func(b *memkafka.Broker) { b.ProduceAborted("events", "a", "b") }, map[int32]int64{}},
		"two aborted transactions, interleaved": {
			func(b *memkafka.Broker) {
				b.Produce("events", "a", "b")
				tx1, tx2 := b.BeginTransaction(), b.BeginTransaction()
				tx1.Produce("events", "c", "d")
				tx2.Produce("events", "e", "f")
				tx1.Produce("events", "g", "h")
				tx1.Abort()
				tx2.Abort()
			}, map[int32]int64{0: 1, 1: 1}},
		"gap at the end":  {func(b *memkafka.Broker) { b.Produce("events", "a"); b.Skip("events", 0, 1000) }, map[int32]int64{0: 1}},
		"nothing but gap": {func(b *memkafka.Broker) { b.Skip("events", 0, 7) }, map[int32]int64{}},
		"open transaction": {
			func(b *memkafka.Broker) {
				b.Produce("events", "a", "b")
				b.BeginTransaction().Produce("events", "c")
				b.Produce("events", "d", "e", "f")
			}, map[int32]int64{0: 1, 1: 3}},
		"expired": {
			func(b *memkafka.Broker) { b.Produce("events", "a", "b"); b.ExpireRecords("events", 0, 1) }, map[int32]int64{1: 1}},
		"expired up to an aborted transaction": {
			func(b *memkafka.Broker) {
				b.ProduceAborted("events", "a", "b", "c", "d")
				b.ExpireRecords("events", 0, 1)
			}, map[int32]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2))
				test.produce(broker)
				memkafka.Start(t, consume(newClient(t, broker, readCommitted()...)))
				broker.WaitCaughtUp("ingest", "events")
				if got := broker.Committed("ingest", "events"); !maps.Equal(got, test.want) {
					t.Errorf("committed %v, not %v", got, test.want)
				}
			})
		})
	}
}

func TestWaitCaughtUpFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 3))
		broker.Produce("events", "a", "b", "c", "d")
		broker.Skip("events", 0, 10)
		var offsets kadm.Offsets
		offsets.AddOffset("events", 0, 1, -1)
		offsets.AddOffset("events", 2, 1, -1)
		if err := kadm.NewClient(newClient(t, broker)).CommitAllOffsets(t.Context(), "ingest", offsets); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err := panicOf(func() { broker.WaitCaughtUp("ingest", "events") })
		if err == nil {
			t.Fatal("it has caught up")
		}
		mustContain(t, err.Error(), `group "ingest"`, `topic "events"`, "not within 1m0s",
			"partition 0: 1 is committed of 2", "partition 1: nothing is committed of 1")
		if took := time.Since(begin); took < time.Minute || took > 61*time.Second {
			t.Errorf("took %v", took)
		}

		broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		if err := panicOf(func() { broker.WaitCaughtUp("ingest", "events") }); err == nil {
			t.Error("it has caught up")
		} else {
			mustContain(t, err.Error(), "partition 0", "TOPIC_AUTHORIZATION_FAILED")
		}
	})
}

// Looking at the end of a long log costs no reading of it all.
func TestWaitCaughtUpWithALongLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		for range 20 {
			batch := make([]string, 10_000)
			for i := range batch {
				batch[i] = strconv.Itoa(i)
			}
			broker.Produce("events", batch...)
		}
		broker.Skip("events", 0, 100)
		var fetched int64
		broker.Cluster().ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			fetched++
			return nil, nil, false
		})
		var offsets kadm.Offsets
		offsets.AddOffset("events", 0, 199_999, -1)
		admin := kadm.NewClient(newClient(t, broker))
		if err := admin.CommitAllOffsets(t.Context(), "ingest", offsets); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(30*time.Second, func() {
			offsets.AddOffset("events", 0, 200_000, -1)
			if err := admin.CommitAllOffsets(t.Context(), "ingest", offsets); err != nil {
				t.Error(err)
			}
		})
		broker.WaitCaughtUp("ingest", "events")
		if fetched > 20 {
			t.Errorf("%d fetch requests", fetched)
		}
	})
}
