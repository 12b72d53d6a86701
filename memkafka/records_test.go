package memkafka_test

import (
	"testing"
	"testing/synctest"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRecordsOfNothing(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		if got := broker.Records("events"); len(got) != 0 {
			t.Errorf("%d records", len(got))
		}
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 1, Value: []byte("a")})
		if diff := cmp.Diff([]place{{1, 0, "a"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecordsAfterDeletedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		broker.Produce("events", "a", "b", "c", "d", "e", "f")
		for p, offset := range []int64{1, 3} {
			if err := broker.Cluster().DeleteRecords("events", int32(p), offset); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]place{{0, 1, "c"}, {0, 2, "e"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		broker.Produce("events", "g", "h")
		if diff := cmp.Diff([]place{{0, 1, "c"}, {0, 2, "e"}, {0, 3, "g"}, {1, 3, "h"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRecordsOfTransactions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		client := newClient(t, broker, kgo.TransactionalID("tx"), kgo.DefaultProduceTopic("events"))
		transact := func(value string) {
			t.Helper()
			if err := client.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		end := func(commit kgo.TransactionEndTry) {
			t.Helper()
			if err := client.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
		}
		want := []place{{0, 0, "committed"}}
		check := func() {
			t.Helper()
			if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
				t.Error(diff)
			}
		}
		transact("committed")
		end(kgo.TryCommit)
		check() // the log ends in a control record
		transact("aborted")
		end(kgo.TryAbort)
		check() // and in an aborted transaction
		transact("open")
		broker.Produce("events", "behind it")
		check()
		end(kgo.TryAbort)
		want = append(want, place{0, 5, "behind it"})
		check()
	})
}

func TestRecordsOfACompactedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		cluster := broker.Cluster()
		if err := cluster.CreateTopic("table", 1, map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "0"}); err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"1", "2", "3", ""} {
			r := &kgo.Record{Topic: "table", Key: []byte("k"), Value: []byte(value)}
			if value == "" {
				r.Value = nil
			}
			broker.ProduceRecords(r)
			cluster.Compact()
		}
		cluster.Compact()
		if got := places(broker.Records("table")); len(got) == 0 || len(got) == 4 || got[0].Offset == 0 {
			t.Errorf("read %v, which is not compacted", got)
		}
	})
}
