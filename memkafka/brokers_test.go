package memkafka_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// quick clients find out sooner that a leader has moved, which matters in real time.
var quick = []kgo.Opt{kgo.MetadataMinAge(100 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond)}

// startConsumer runs a member that commits what it reads, and fails the test if it loses or repeats something.
func startConsumer(t *testing.T, broker *memkafka.Broker, opts ...kgo.Opt) {
	t.Helper()
	next := make(map[int32]int64)
	client := newClient(t, broker, append([]kgo.Opt{
		kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			if len(lost) > 0 {
				t.Errorf("lost %v", lost)
			}
		}),
	}, opts...)...)
	memkafka.Start(t, func(ctx context.Context) error {
		for {
			fetches := client.PollFetches(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, err := range fetches.Errors() {
				return fmt.Errorf("%s[%d]: %w", err.Topic, err.Partition, err.Err)
			}
			for r := range fetches.RecordsAll() {
				if r.Offset != next[r.Partition] {
					t.Errorf("partition %d: offset %d after %d", r.Partition, r.Offset, next[r.Partition])
				}
				next[r.Partition] = r.Offset + 1
			}
			if err := client.CommitRecords(ctx, fetches.Records()...); err != nil && ctx.Err() == nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	})
}

func TestStopBroker(t *testing.T) {
	for name, opts := range protocols {
		for stopped := range int32(3) {
			t.Run(fmt.Sprintf("%s %d", name, stopped), func(t *testing.T) {
				run := insideAndOutside
				if stopped != 0 {
					run = synctest.Test // real time takes its time
				}
				run(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 6))
					startConsumer(t, broker, append(slices.Clip(quick), opts...)...)
					broker.Produce("events", "a", "b", "c", "d", "e", "f")
					broker.WaitCommitted("g", "events", 6)

					broker.StopBroker(stopped)
					broker.StopBroker(stopped)
					broker.Produce("events", "a", "b", "c", "d", "e", "f")
					broker.WaitCommitted("g", "events", 12)
					if n := len(broker.Records("events")); n != 12 {
						t.Errorf("%d records", n)
					}
					for p := range int32(6) {
						leader := broker.Cluster().LeaderFor("events", p)
						if leader == stopped || p%3 != stopped && leader != p%3 {
							t.Errorf("partition %d is led by broker %d", p, leader)
						}
					}
					metadata, err := kadm.NewClient(newClient(t, broker)).Metadata(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if ids := metadata.Brokers.NodeIDs(); len(ids) != 2 || slices.Contains(ids, stopped) {
						t.Errorf("metadata names brokers %v", ids)
					}
					broker.CreateTopic("more", 3)
					if leader := broker.Cluster().LeaderFor("more", stopped); leader == stopped {
						t.Error("the stopped broker leads a new topic")
					}

					broker.StartBroker(stopped)
					broker.StartBroker(stopped)
					broker.MoveLeader("events", stopped, stopped)
					broker.Produce("events", "a", "b", "c", "d", "e", "f")
					broker.WaitCommitted("g", "events", 18)
				})
			})
		}
	}
}

// Each group finds its coordinator, also one that is new while a broker is stopped.
func TestStopBrokerWithManyGroups(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 1))
		admin := kadm.NewClient(newClient(t, broker, kgo.MetadataMinAge(100*time.Millisecond)))
		commit := func(group string) {
			t.Helper()
			var offsets kadm.Offsets
			offsets.AddOffset("events", 0, 1, -1)
			// kgo tries a broker that is gone twice before it gives the request up.
			var err error
			for range 5 {
				if err = admin.CommitAllOffsets(t.Context(), group, offsets); err == nil {
					return
				}
			}
			t.Errorf("group %s: %v", group, err)
		}
		for i := range 6 {
			commit(fmt.Sprint("before-", i))
		}
		broker.StopBroker(1)
		for i := range 6 {
			commit(fmt.Sprint("before-", i))
			commit(fmt.Sprint("after-", i))
		}
		broker.StartBroker(1)
	})
}

// With no other broker, a stopped one is as if all are down.
func TestStopTheOnlyBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
		broker.Produce("events", "a", "b")
		read(t, client, 2)
		broker.StopBroker(0)
		broker.Produce("events", "c", "d")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for ctx.Err() == nil {
			if n := client.PollFetches(ctx).NumRecords(); n > 0 {
				t.Errorf("%d records from a broker that is stopped", n)
			}
		}
		broker.StartBroker(0)
		read(t, client, 2)
	})
}

func TestMoveLeaderAndCoordinator(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Brokers(2), memkafka.Topic("events", 2))
				startConsumer(t, broker, append(slices.Clip(quick), opts...)...)
				for i := range 4 {
					broker.Produce("events", "a", "b")
					broker.WaitCommitted("g", "events", int64(2*i+2))
					broker.MoveLeader("events", 0, int32(i%2))
					coordinator := broker.Cluster().CoordinatorFor("g")
					broker.MoveCoordinator("g")
					if broker.Cluster().CoordinatorFor("g") == coordinator {
						t.Error("the coordinator has not moved")
					}
				}
				broker.Produce("events", "a", "b")
				broker.WaitCommitted("g", "events", 10)
				if n := broker.Members("g"); n != 1 {
					t.Errorf("%d members", n)
				}
			})
		})
	}
}

func TestBadBrokerOperations(t *testing.T) {
	broker := open(t, memkafka.Brokers(2), memkafka.Topic("events", 2))
	broker.StopBroker(1)
	for name, test := range map[string]struct {
		do   func()
		want []string
	}{
		"stop":         {func() { broker.StopBroker(2) }, []string{"stop broker 2: there are brokers 0 to 1"}},
		"start":        {func() { broker.StartBroker(-1) }, []string{"start broker -1: there are brokers 0 to 1"}},
		"to nowhere":   {func() { broker.MoveLeader("events", 0, 2) }, []string{"there are brokers 0 to 1"}},
		"to a stopped": {func() { broker.MoveLeader("events", 0, 1) }, []string{`topic "events", partition 0 to broker 1: it is stopped`}},
		"topic":        {func() { broker.MoveLeader("evnts", 0, 0) }, []string{`topic "evnts" does not exist`}},
		"partition":    {func() { broker.MoveLeader("events", 2, 0) }, []string{"partitions 0 to 1"}},
		"coordinator":  {func() { broker.MoveCoordinator("g") }, []string{`group "g"`, "1 brokers are up"}},
		"no group":     {func() { broker.MoveCoordinator("") }, []string{"needs a name"}},
	} {
		err := panicOf(test.do)
		if err == nil {
			t.Errorf("%s: did not fail", name)
			continue
		}
		mustContain(t, err.Error(), append(test.want, "memkafka: ")...)
	}
}

// A broker goes away, and another one takes over what it led.
func ExampleBroker_StopBroker() {
	broker, err := memkafka.Open(memkafka.Brokers(2), memkafka.Topic("events", 2))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	client, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ConsumeTopics("events"))...)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	broker.StopBroker(1)
	broker.Produce("events", "a", "b")
	var got []string
	for len(got) < 2 {
		got = append(got, values(client.PollFetches(context.Background()).Records())...)
	}
	slices.Sort(got)
	fmt.Println(got)
	// Output: [a b]
}
