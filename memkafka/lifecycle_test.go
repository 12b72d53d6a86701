package memkafka_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAddPartitions(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(2), memkafka.Topic("events", 1))
		broker.Produce("events", "a")
		broker.AddPartitions("events", 3)
		broker.Produce("events", "b", "c", "d")
		if diff := cmp.Diff([]place{{0, 0, "a"}, {0, 1, "b"}, {1, 0, "c"}, {2, 0, "d"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		details, err := kadm.NewClient(newClient(t, broker)).ListTopics(t.Context(), "events")
		if err != nil {
			t.Fatal(err)
		}
		for p, d := range details["events"].Partitions {
			if d.Leader != p%2 {
				t.Errorf("partition %d is led by %d", p, d.Leader)
			}
		}
	})
}

// A consumer that is at work gets the new partitions when its client looks again.
func TestAddPartitionsUnderAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		rival := broker.Join("ingest", "events", kgo.MetadataMaxAge(time.Minute), kgo.MetadataMinAge(time.Second))
		broker.WaitStable("ingest", 1)
		broker.AddPartitions("events", 4)
		broker.Produce("events", "a", "b", "c", "d")
		broker.WaitStable("ingest", 1) // which counts the new ones
		time.Sleep(10 * time.Second)
		if got := slices.Sorted(slices.Values(values(rival.Consumed()))); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
			t.Errorf("consumed %q", got)
		}
	})
}

func TestDeleteTopic(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		id := func() [16]byte { return broker.Cluster().TopicInfo("events").TopicID }
		memkafka.Start(t, consume(newClient(t, broker, kgo.ConsumerGroup("ingest"), kgo.ConsumeTopics("events"))))
		broker.Produce("events", "a", "b", "c")
		broker.WaitCaughtUp("ingest", "events")
		first := id()

		broker.DeleteTopic("events")
		if got := broker.Committed("ingest", "events"); len(got) != 0 {
			t.Errorf("commits outlived the topic: %v", got)
		}
		broker.CreateTopic("events", 3)
		broker.Produce("events", "d", "e")
		if diff := cmp.Diff([]place{{0, 0, "d"}, {1, 0, "e"}}, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		if second := id(); second == first {
			t.Error("the new topic has the ID of the old one")
		}
	})
}

// What a consumer sees of a topic that was created anew: kgo stays with the old one and says so.
func TestRecreatedTopicUnderAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		client := newClient(t, broker, kgo.ConsumeTopics("events"))
		broker.Produce("events", "a")
		read(t, client, 1)
		broker.DeleteTopic("events")
		broker.CreateTopic("events", 1)
		broker.Produce("events", "b")
		var seen error
		for seen == nil {
			client.PollFetches(t.Context()).EachError(func(_ string, _ int32, err error) { seen = err })
		}
		if !errors.Is(seen, kerr.UnknownTopicID) {
			t.Errorf("the consumer got %v", seen)
		}
		client.PurgeTopicsFromConsuming("events")
		client.AddConsumeTopics("events")
		if got := values(read(t, client, 1)); got[0] != "b" {
			t.Errorf("read %q", got)
		}
	})
}

// A stopped broker is given no partitions.
func TestAddPartitionsWhileABrokerIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(2), memkafka.Topic("events", 1))
		broker.StopBroker(1)
		broker.AddPartitions("events", 3)
		for p := range int32(3) {
			if leader := broker.Cluster().LeaderFor("events", p); leader != 0 {
				t.Errorf("partition %d is led by %d", p, leader)
			}
		}
		broker.Produce("events", "a", "b", "c")
		read(t, newClient(t, broker, kgo.ConsumeTopics("events")), 3)
	})
}
