package memkafka_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestFollow(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		broker.Produce("events", "a", "b", "c")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a record that never comes is a failure, and no hang
		defer cancel()
		next, stop := iter.Pull(broker.Follow(ctx, "events"))
		defer stop()
		expect := func(want ...string) {
			t.Helper()
			for _, value := range want {
				if r, ok := next(); !ok || string(r.Value) != value {
					t.Fatalf("got %+v, %t, not %q", r, ok, value)
				}
			}
		}
		expect("a", "c", "b")
		broker.Produce("events", "d")
		expect("d")
		broker.ProduceAborted("events", "aborted", "aborted")
		broker.Skip("events", 0, 5)
		broker.AddPartitions("events", 3)
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 2, Value: []byte("e")})
		expect("e")
		tx := broker.BeginTransaction()
		tx.ProduceRecords(&kgo.Record{Topic: "events", Partition: 0, Value: []byte("g")})
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 1, Value: []byte("f")})
		expect("f")
		tx.Commit()
		expect("g")
		broker.ExpireRecords("events", 1, 4)
		broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: 1, Value: []byte("h")})
		expect("h")
		broker.DeleteTopic("events")
		broker.CreateTopic("events", 1)
		broker.Produce("events", "new")
		expect("new")
	})
}

func TestFollowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		broker.Produce("events", "a", "b", "c")

		// With its context, also in the midst of records.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		follow := broker.Follow(ctx, "events")
		if got := values(slices.Collect(follow)); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("got %q", got)
		}
		if took := time.Since(begin); took != time.Hour {
			t.Errorf("ended after %v", took)
		}
		for range follow {
			t.Error("a record after the end")
		}
		ctx, cancel = context.WithCancel(t.Context())
		n := 0
		for range broker.Follow(ctx, "events") {
			n++
			cancel()
		}
		if n != 1 {
			t.Errorf("%d records after the end of the context", n-1)
		}

		// With its loop; a second one begins anew.
		follow = broker.Follow(t.Context(), "events")
		for range 2 {
			for r := range follow {
				if string(r.Value) != "a" {
					t.Errorf("begins with %q", r.Value)
				}
				break
			}
		}

		// While the topic is away, it waits for it.
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		follow = broker.Follow(ctx, "events")
		broker.DeleteTopic("events")
		for range follow {
			t.Error("a record of a deleted topic")
		}
		broker.CreateTopic("events", 1)

		// With the broker.
		done := make(chan []string)
		go func() { done <- values(slices.Collect(broker.Follow(context.Background(), "events"))) }()
		broker.Produce("events", "d")
		time.Sleep(time.Second)
		broker.Close()
		if got := <-done; !slices.Equal(got, []string{"d"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestFollowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		broker.Produce("events", "a")
		broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		err := panicOf(func() {
			for range broker.Follow(t.Context(), "events") {
				t.Error("a record")
			}
		})
		if !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("it says %v", err)
		}
	})
}

// An hour of following costs little.
func TestFollowIdles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for r := range broker.Follow(ctx, "events") {
			t.Error(fmt.Sprint(r))
		}
	})
}
