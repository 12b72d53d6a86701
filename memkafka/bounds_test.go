package memkafka_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestBounds(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		check := func(partition int32, wantStart, wantEnd int64) {
			t.Helper()
			if start, end := broker.Bounds("events", partition); start != wantStart || end != wantEnd {
				t.Errorf("partition %d goes from %d to %d, not %d to %d", partition, start, end, wantStart, wantEnd)
			}
			if end := broker.End("events")[partition]; end != wantEnd {
				t.Errorf("partition %d ends at %d, not %d", partition, end, wantEnd)
			}
		}
		check(0, 0, 0)
		broker.Produce("events", "a", "b", "c")
		check(0, 0, 2)
		check(1, 0, 1)
		broker.ExpireRecords("events", 0, 1)
		check(0, 1, 2)
		broker.ExpireRecords("events", 0, 2)
		broker.ExpireRecords("events", 0, 2)
		check(0, 2, 2)
		broker.Skip("events", 1, 3)
		check(1, 0, 4)
		broker.Produce("events", "d", "e")
		check(0, 2, 3)
		check(1, 0, 5)
		if diff := cmp.Diff([]place{{0, 2, "e"}, {1, 0, "b"}, {1, 4, "d"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
	})
}

// A consumer that has committed an offset which then expires goes on at the start of what is left.
func TestExpireRecordsUnderAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		run := func() *kgo.Client {
			return newClient(t, broker, kgo.ConsumerGroup("ingest"), kgo.ConsumeTopics("events"), kgo.DisableAutoCommit())
		}
		broker.Produce("events", "a", "b", "c", "d", "e")
		first := run()
		records := read(t, first, 5)
		if err := first.CommitRecords(t.Context(), records[0]); err != nil {
			t.Fatal(err)
		}
		first.Close()
		broker.ExpireRecords("events", 0, 3)
		if got := values(read(t, run(), 2)); !slices.Equal(got, []string{"d", "e"}) {
			t.Errorf("read %q", got)
		}
		if got := broker.Committed("ingest", "events"); !maps.Equal(got, map[int32]int64{0: 1}) {
			t.Errorf("committed %v", got)
		}
	})
}
