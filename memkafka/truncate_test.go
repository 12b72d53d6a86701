package memkafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestTruncate(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		put := func(values ...string) {
			for _, v := range values {
				broker.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte(v)})
			}
		}
		check := func(end int64, want ...place) {
			t.Helper()
			if got := broker.End("events")[0]; got != end {
				t.Errorf("the log ends at %d, want %d", got, end)
			}
			if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
				t.Error(diff)
			}
		}
		put("a", "b", "c", "d")
		broker.Truncate("events", 0, 4) // a new epoch, and nothing else
		check(4, place{0, 0, "a"}, place{0, 1, "b"}, place{0, 2, "c"}, place{0, 3, "d"})
		broker.Truncate("events", 0, 2)
		check(2, place{0, 0, "a"}, place{0, 1, "b"})
		put("e")
		check(3, place{0, 0, "a"}, place{0, 1, "b"}, place{0, 2, "e"})

		// A batch goes as a whole. These are one, two or three.
		broker.Produce("events", "f", "0", "g", "1", "h")
		broker.Truncate("events", 0, 5)
		end := broker.End("events")[0]
		if end < 3 || end > 5 {
			t.Errorf("the log ends at %d, want 3 to 5", end)
		}
		left := []place{{0, 0, "a"}, {0, 1, "b"}, {0, 2, "e"}, {0, 3, "f"}, {0, 4, "g"}}[:end]
		check(end, append(left, place{1, 0, "0"}, place{1, 1, "1"})...)

		broker.ExpireRecords("events", 0, 1)
		broker.Truncate("events", 0, 1)
		check(1, place{1, 0, "0"}, place{1, 1, "1"})
		put("i")
		check(2, place{0, 1, "i"}, place{1, 0, "0"}, place{1, 1, "1"})
		mustContain(t, broker.Log(), `topic "events": partition 0 is truncated to end at 1, in epoch `)
	})
}

// Transactions are cut off as well: those that are open hold nothing up any more, and those that were aborted hide
// nothing that comes in their place.
func TestTruncateTransactions(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		broker.Produce("events", "a")
		broker.ProduceAborted("events", "b")
		tx := broker.BeginTransaction()
		tx.Produce("events", "c")
		broker.Produce("events", "d")
		broker.Truncate("events", 0, 1)
		broker.Produce("events", "e", "f")
		want := []place{{0, 0, "a"}, {0, 1, "e"}, {0, 2, "f"}}
		if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}

		// What is open below the cut goes on.
		open := broker.BeginTransaction()
		open.Produce("events", "g")
		broker.Produce("events", "h")
		broker.Truncate("events", 0, 4)
		if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		open.Commit()
		if diff := cmp.Diff(append(want, place{0, 3, "g"}), places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
	})
}

// A client that has read what is lost is told, whether anything was produced in its place or not.
func TestTruncateUnderAConsumer(t *testing.T) {
	for name, meanwhile := range map[string]int{"nothing comes after it": 0, "a bit comes": 1, "more comes than was lost": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 1))
				client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.MetadataMinAge(10*time.Millisecond))
				for i := range 10 {
					broker.Produce("events", fmt.Sprint("old ", i))
				}
				read(t, client, 10)
				broker.Truncate("events", 0, 6)
				var want, got []string
				for i := range meanwhile {
					want = append(want, fmt.Sprint("new ", i))
					broker.Produce("events", want[i])
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var lost *kgo.ErrDataLoss
				for ctx.Err() == nil {
					fetches := client.PollFetches(ctx)
					got = append(got, values(fetches.Records())...)
					for _, e := range fetches.Errors() {
						if !errors.As(e.Err, &lost) && ctx.Err() == nil {
							t.Errorf("%v", e.Err)
						}
					}
				}
				if lost == nil || lost.ConsumedTo != 10 || lost.ResetTo != 6 {
					t.Errorf("%v, want a loss from 10 to 6", lost)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("read: %s", diff)
				}
			})
		})
	}
}

func TestBadTruncations(t *testing.T) {
	broker := open(t, memkafka.Topic("events", 1))
	broker.Produce("events", "a")
	for want, truncate := range map[string]func(){
		`topic "others"`:               func() { broker.Truncate("others", 0, 0) },
		"partition 7":                  func() { broker.Truncate("events", 7, 0) },
		"offset 2: the log has 0 to 1": func() { broker.Truncate("events", 0, 2) },
		"offset -1":                    func() { broker.Truncate("events", 0, -1) },
	} {
		err := panicOf(truncate)
		if err == nil {
			t.Errorf("%s: it worked", want)
			continue
		}
		mustContain(t, err.Error(), want)
	}
}

// Another broker leads a partition now, one that did not have all of it.
func ExampleBroker_Truncate() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	broker.Produce("events", "a")
	broker.Produce("events", "b")
	broker.Truncate("events", 0, 1)
	broker.Produce("events", "c")
	for _, r := range broker.Records("events") {
		fmt.Println(r.Offset, string(r.Value))
	}
	// Output:
	// 0 a
	// 1 c
}
