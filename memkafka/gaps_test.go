package memkafka_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestSkip(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(2), memkafka.Topic("events", 2))
		broker.Skip("events", 1, 0)
		broker.Skip("events", 1, 2)
		broker.Produce("events", "a", "b", "c", "d")
		broker.Skip("events", 1, 25_000) // in several requests
		broker.Produce("events", "e", "f")
		broker.Skip("events", 0, 1)
		want := []place{{0, 0, "a"}, {0, 1, "c"}, {0, 2, "e"}, {1, 2, "b"}, {1, 3, "d"}, {1, 25_004, "f"}}
		if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		for _, level := range []kgo.IsolationLevel{kgo.ReadUncommitted(), kgo.ReadCommitted()} {
			client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.FetchIsolationLevel(level))
			got := places(read(t, client, len(want)))
			slices.SortFunc(got, func(a, b place) int { return int(100_000*(a.Partition-b.Partition)) + int(a.Offset-b.Offset) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// What is produced into an open transaction's way stays there.
func TestSkipInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		tx := broker.BeginTransaction()
		tx.Produce("events", "a")
		broker.Skip("events", 0, 3)
		tx.Produce("events", "b")
		if got := broker.Records("events"); len(got) != 0 {
			t.Errorf("a skipped offset ended the transaction: %q", values(got))
		}
		tx.Abort()
		broker.Produce("events", "c")
		if diff := cmp.Diff([]place{{0, 6, "c"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCompact(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("table", 1), memkafka.Topic("events", 1))
		broker.Produce("events", "a", "a")
		put := func(key, value string) *kgo.Record {
			r := &kgo.Record{Topic: "table", Key: []byte(key), Value: []byte(value)}
			if value == "" {
				r.Value = nil
			}
			return r
		}
		broker.Compact("table") // of nothing
		broker.ProduceRecords(put("x", "1"), put("y", "1"), put("x", "2"), put("z", "1"))
		broker.ProduceRecords(put("y", "2"), put("w", "1"), put("x", "3"))
		broker.ProduceRecords(put("w", "2"))
		broker.ProduceRecords(put("w", "3")) // the last batch is not compacted
		broker.Compact("table")
		want := []place{{0, 3, "1"}, {0, 4, "2"}, {0, 6, "3"}, {0, 7, "2"}, {0, 8, "3"}}
		if diff := cmp.Diff(want, places(broker.Records("table"))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(want, places(read(t, newClient(t, broker, kgo.ConsumeTopics("table")), len(want)))); diff != "" {
			t.Error(diff)
		}
		if got := broker.Records("events"); len(got) != 2 {
			t.Errorf("another topic was compacted: %q", values(got))
		}
		broker.ProduceRecords(put("w", "4"))
		broker.Compact("table")
		want = append(slices.DeleteFunc(want, func(p place) bool { return p.Offset == 7 }), place{0, 9, "4"})
		if diff := cmp.Diff(want, places(broker.Records("table"))); diff != "" {
			t.Error(diff)
		}
	})
}

// A topic is not compacted but by Compact, and keeps tombstones for a day.
func TestCompactTombstones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("table", 1))
		for i := range 3 {
			broker.ProduceRecords(&kgo.Record{Topic: "table", Key: []byte("k"), Value: fmt.Append(nil, i)})
		}
		broker.ProduceRecords(&kgo.Record{Topic: "table", Key: []byte("k")})
		broker.ProduceRecords(&kgo.Record{Topic: "table", Key: []byte("other")})
		time.Sleep(3 * time.Hour)
		if n := len(broker.Records("table")); n != 5 {
			t.Errorf("%d records of 5 are left without a call", n)
		}
		broker.Compact("table")
		if diff := cmp.Diff([]place{{0, 3, ""}, {0, 4, ""}}, places(broker.Records("table"))); diff != "" {
			t.Error(diff)
		}
		time.Sleep(25 * time.Hour)
		broker.Compact("table")
		if diff := cmp.Diff([]place{{0, 4, ""}}, places(broker.Records("table"))); diff != "" {
			t.Error(diff)
		}
	})
}
