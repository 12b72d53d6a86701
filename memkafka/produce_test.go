package memkafka_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// place is where a record is and what it says.
type place struct {
	Partition int32
	Offset    int64
	Value     string
}

func places(records []*kgo.Record) []place {
	var ps []place
	for _, r := range records {
		ps = append(ps, place{r.Partition, r.Offset, string(r.Value)})
	}
	return ps
}

func TestProduceGoesAround(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3), memkafka.Topic("others", 2))
		broker.Produce("events", "a", "b")
		broker.Produce("others", "x")
		broker.Produce("events")
		broker.Produce("events", "c", "d", "")
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 2, Value: []byte("r")})
		broker.Produce("events", "e")
		want := []place{{0, 0, "a"}, {0, 1, "d"}, {1, 0, "b"}, {1, 1, ""}, {2, 0, "c"}, {2, 1, "r"}, {2, 2, "e"}}
		if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		for _, r := range broker.Records("events") {
			if r.Key != nil || r.Value == nil || r.Topic != "events" {
				t.Errorf("record %+v", r)
			}
		}
		if got := values(broker.Records("others")); !slices.Equal(got, []string{"x"}) {
			t.Errorf("others has %q", got)
		}
	})
}

func TestProduceRecordsRoundTrip(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		at := time.Date(2024, 2, 29, 12, 0, 0, int(5*time.Millisecond), time.UTC)
		produced := []*kgo.Record{
			{Topic: "events", Partition: 1, Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []kgo.RecordHeader{
				{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "null", Value: nil}, {Key: "", Value: []byte{}},
			}},
			{Topic: "events", Partition: 1, Key: nil, Value: nil, Timestamp: at.Add(time.Second)},
			{Topic: "events", Partition: 1, Key: []byte{}, Value: []byte{}, Timestamp: at.Add(-time.Hour)},
		}
		var before []kgo.Record
		for _, r := range produced {
			before = append(before, *r)
		}
		broker.ProduceRecords(produced...)
		broker.ProduceRecords()

		same := cmp.Options{cmp.Comparer(func(a, b kgo.RecordHeader) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value) && (a.Value == nil) == (b.Value == nil)
		})}
		for i, r := range produced {
			if !cmp.Equal(before[i].Headers, r.Headers, same) || r.Offset != 0 || r.Partition != 1 || !r.Timestamp.Equal(before[i].Timestamp) {
				t.Errorf("record %d of the caller was changed: %+v", i, r)
			}
		}

		client := newClient(t, broker, kgo.ConsumeTopics("events"))
		for who, got := range map[string][]*kgo.Record{"Records": broker.Records("events"), "a client": read(t, client, 3)} {
			if len(got) != len(produced) {
				t.Fatalf("%s: %d records", who, len(got))
			}
			for i, r := range got {
				want := produced[i]
				if string(r.Key) != string(want.Key) || (r.Key == nil) != (want.Key == nil) {
					t.Errorf("%s: record %d has key %#v", who, i, r.Key)
				}
				if string(r.Value) != string(want.Value) || (r.Value == nil) != (want.Value == nil) {
					t.Errorf("%s: record %d has value %#v", who, i, r.Value)
				}
				if !r.Timestamp.Equal(want.Timestamp) || r.Offset != int64(i) || r.Partition != 1 || r.Topic != "events" {
					t.Errorf("%s: record %d is %+v", who, i, r)
				}
				if diff := cmp.Diff(want.Headers, r.Headers, same); diff != "" {
					t.Errorf("%s: headers of record %d: %s", who, i, diff)
				}
			}
		}
	})
}

func TestProduceStampsTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		time.Sleep(time.Hour)
		now := time.Now()
		broker.Produce("events", "a")
		if got := broker.Records("events")[0].Timestamp; !got.Equal(now) {
			t.Errorf("produced at %v with timestamp %v", now, got)
		}
	})
}

func TestProduceAll(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		// More bytes than one fetch returns, and more than the client's buffers hold in number.
		big := strings.Repeat("x", 500_000)
		for range 2 {
			broker.Produce("events", slices.Repeat([]string{big}, 40)...)
		}
		broker.Produce("events", slices.Repeat([]string{"small"}, 20_000)...)
		records := broker.Records("events")
		if len(records) != 20_080 {
			t.Fatalf("%d records", len(records))
		}
		for i, r := range records {
			if r.Partition != int32(i/10_040) || r.Offset != int64(i%10_040) {
				t.Fatalf("record %d is at partition %d, offset %d", i, r.Partition, r.Offset)
			}
		}
	})
}

func TestProduceFromManyGoroutines(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 10 {
					broker.Produce("events", fmt.Sprint(i, j, "a"), fmt.Sprint(i, j, "b"))
				}
			})
		}
		wg.Wait()
		got := values(broker.Records("events"))
		if len(got) != 160 {
			t.Fatalf("%d records", len(got))
		}
		for i := 0; i < len(got); i += 2 {
			if a, b := got[i], got[i+1]; a[:len(a)-1] != b[:len(b)-1] {
				t.Errorf("%q and %q were produced together and stand apart", a, b)
			}
		}
	})
}

// The broker's methods see a topic as it is, not as it was when they saw it first.
func TestProduceToAChangedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		broker.Produce("events", "a")
		admin := kadm.NewClient(newClient(t, broker))
		begin := time.Now()
		if _, err := admin.UpdatePartitions(t.Context(), 3, "events"); err != nil {
			t.Fatal(err)
		}
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 2, Value: []byte("b")})
		if diff := cmp.Diff([]place{{0, 0, "a"}, {2, 0, "b"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}

		if _, err := admin.DeleteTopics(t.Context(), "events"); err != nil {
			t.Fatal(err)
		}
		broker.CreateTopic("events", 3)
		broker.Produce("events", "c")
		if diff := cmp.Diff([]string{"c"}, values(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// No operation waits for ever, whatever the broker is made to answer.
func TestOperationsGiveUp(t *testing.T) {
	for name, test := range map[string]struct {
		key kmsg.Key
		do  func(*memkafka.Broker)
	}{
		"Produce": {kmsg.Produce, func(b *memkafka.Broker) { b.Produce("events", "b") }},
		"Records": {kmsg.Fetch, func(b *memkafka.Broker) { b.Records("events") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := open(t, memkafka.Topic("events", 1))
				broker.Produce("events", "a")
				broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{test.key}, Err: kerr.NotLeaderForPartition, Count: -1})
				begin := time.Now()
				err := panicOf(func() { test.do(broker) })
				if err == nil {
					t.Fatal("it worked")
				}
				mustContain(t, err.Error(), "events", "partition 0", "within 1m0s")
				if took := time.Since(begin); took < time.Minute || took > 61*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}
