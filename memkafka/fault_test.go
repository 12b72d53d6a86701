package memkafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// asks has a request of each kind for topic "events", partitions 0 and 1, and group "g", and reads the answer's error for
// each partition, or for all.
var asks = map[kmsg.Key]func(ctx context.Context, client *kgo.Client) ([]int16, error){
	kmsg.Produce: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		var codes []int16
		for p := range int32(2) {
			_, err := client.ProduceSync(ctx, &kgo.Record{Topic: "events", Partition: p, Value: []byte("x")}).First()
			code, err := codeOf(err)
			if err != nil {
				return nil, err
			}
			codes = append(codes, code)
		}
		return codes, nil
	},
	kmsg.Fetch: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		id, err := idOf(ctx, client)
		if err != nil {
			return nil, err
		}
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = "events", id
		for p := range int32(2) {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.PartitionMaxBytes = p, 1<<20
			t.Partitions = append(t.Partitions, rp)
		}
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes = 1 << 20
		req.Topics = append(req.Topics, t)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		resp := kresp.(*kmsg.FetchResponse)
		if resp.ErrorCode != 0 {
			return []int16{resp.ErrorCode, resp.ErrorCode}, nil
		}
		var codes []int16
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		return codes, nil
	},
	kmsg.ListOffsets: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = "events"
		for p := range int32(2) {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition = p
			t.Partitions = append(t.Partitions, rp)
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.Topics = append(req.Topics, t)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		var codes []int16
		for _, p := range kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes, nil
	},
	kmsg.Metadata: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr("events")
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = append(req.Topics, t)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{kresp.(*kmsg.MetadataResponse).Topics[0].ErrorCode}, nil
	},
	kmsg.FindCoordinator: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{"g"}
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{kresp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode}, nil
	},
	kmsg.OffsetCommit: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		id, err := idOf(ctx, client)
		if err != nil {
			return nil, err
		}
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = "events", id
		for p := range int32(2) {
			rp := kmsg.NewOffsetCommitRequestTopicPartition()
			rp.Partition, rp.Offset = p, 7
			t.Partitions = append(t.Partitions, rp)
		}
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = "g", -1
		req.Topics = append(req.Topics, t)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		var codes []int16
		for _, p := range kresp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes, nil
	},
	kmsg.OffsetFetch: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		id, err := idOf(ctx, client)
		if err != nil {
			return nil, err
		}
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.TopicID, t.Partitions = "events", id, []int32{0, 1}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "g"
		g.Topics = append(g.Topics, t)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Groups = append(req.Groups, g)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		group := kresp.(*kmsg.OffsetFetchResponse).Groups[0]
		if group.ErrorCode != 0 {
			return []int16{group.ErrorCode, group.ErrorCode}, nil
		}
		var codes []int16
		for _, p := range group.Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes, nil
	},
	kmsg.OffsetForLeaderEpoch: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = "events"
		for p := range int32(2) {
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.LeaderEpoch = p, 0
			t.Partitions = append(t.Partitions, rp)
		}
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		req.Topics = append(req.Topics, t)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		var codes []int16
		for _, p := range kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes, nil
	},
	kmsg.InitProducerID: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.ProducerID, req.ProducerEpoch = -1, -1
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{kresp.(*kmsg.InitProducerIDResponse).ErrorCode}, nil
	},
	kmsg.JoinGroup: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		protocol := kmsg.NewJoinGroupRequestProtocol()
		protocol.Name = "range"
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = "other", 45000, 60000, "consumer"
		req.Protocols = append(req.Protocols, protocol)
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		code := kresp.(*kmsg.JoinGroupResponse).ErrorCode
		if code == kerr.MemberIDRequired.Code {
			code = 0
		}
		return []int16{code}, nil
	},
	kmsg.SyncGroup: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrSyncGroupRequest()
		req.Group, req.MemberID = "g", "nobody"
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{unlessUnknown(kresp.(*kmsg.SyncGroupResponse).ErrorCode)}, nil
	},
	kmsg.Heartbeat: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID = "g", "nobody"
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{unlessUnknown(kresp.(*kmsg.HeartbeatResponse).ErrorCode)}, nil
	},
	kmsg.LeaveGroup: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = "g"
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{kresp.(*kmsg.LeaveGroupResponse).ErrorCode}, nil
	},
	kmsg.ConsumerGroupHeartbeat: func(ctx context.Context, client *kgo.Client) ([]int16, error) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch = "other", "nobody", 3
		kresp, err := client.Broker(0).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		return []int16{unlessUnknown(kresp.(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode)}, nil
	},
}

func idOf(ctx context.Context, client *kgo.Client) ([16]byte, error) {
	topics, err := kadm.NewClient(client).ListTopics(ctx, "events")
	if err != nil {
		return [16]byte{}, err
	}
	return topics["events"].ID, nil
}

func unlessUnknown(code int16) int16 {
	if code == kerr.UnknownMemberID.Code {
		return 0
	}
	return code
}

func codeOf(err error) (int16, error) {
	if err == nil {
		return 0, nil
	}
	if kerr, ok := errors.AsType[*kerr.Error](err); ok {
		return kerr.Code, nil
	}
	return 0, err
}

// newAsker makes a client that asks once.
func newAsker(t *testing.T, broker *memkafka.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return newClient(t, broker, append([]kgo.Opt{
		kgo.ClientID("asker"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.RecordRetries(0),
		kgo.RequestRetries(0), kgo.DisableClientMetrics(),
	}, opts...)...)
}

// withGroup makes a broker with a group that has committed something.
func withGroup(t *testing.T) *memkafka.Broker {
	t.Helper()
	broker := memkafka.New(t, memkafka.Topic("events", 2))
	var offsets kadm.Offsets
	offsets.AddOffset("events", 0, 1, -1)
	if _, err := kadm.NewClient(newClient(t, broker)).CommitOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	return broker
}

func TestFailEachKind(t *testing.T) {
	for kind, ask := range asks {
		t.Run(kind.Name(), func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := withGroup(t)
				client := newAsker(t, broker)
				mustAnswer := func(want ...int16) {
					t.Helper()
					got, err := ask(t.Context(), client)
					if err != nil {
						t.Fatal(err)
					}
					if want = want[:min(len(want), len(got))]; cmp.Diff(want, got) != "" {
						t.Errorf("answered %v, want %v", got, want)
					}
				}
				const failed = 41 // not a controller, which none of these requests needs
				mustAnswer(0, 0)
				fault := broker.Fail(kind, kerr.NotController)
				mustAnswer(failed, failed)
				mustAnswer(failed, failed)
				fault.Wait(2)
				if fault.Hits() < 2 {
					t.Errorf("%d hits", fault.Hits())
				}
				fault.Heal()
				fault.Heal()
				mustAnswer(0, 0)

				others := broker.Fail(kind, kerr.NotController, memkafka.OfMember("somebody else"))
				mustAnswer(0, 0)
				if others.Hits() != 0 {
					t.Errorf("%d hits on somebody else", others.Hits())
				}
				mine := broker.Fail(kind, kerr.NotController, memkafka.OfMember("asker"), memkafka.OnBroker(0), memkafka.Times(1))
				if got, err := ask(t.Context(), client); err != nil || got[0] != failed {
					t.Errorf("answered %v, %v", got, err)
				}
				mustAnswer(0, 0)
				if mine.Hits() != 1 {
					t.Errorf("%d hits of one", mine.Hits())
				}
				broker.Produce("events", "the broker's own requests are not concerned")
			})
		})
	}
}

func TestFailPartOfARequest(t *testing.T) {
	for _, kind := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetCommit, kmsg.OffsetFetch} {
		t.Run(kind.Name(), func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := withGroup(t)
				client := newAsker(t, broker)
				broker.Fail(kind, kerr.NotController, memkafka.OnTopic("others"))
				fault := broker.Fail(kind, kerr.NotController, memkafka.OnTopic("events"), memkafka.OnPartitions(1, 7))
				got, err := asks[kind](t.Context(), client)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]int16{0, 41}, got); diff != "" {
					t.Error(diff)
				}
				if fault.Hits() != 1 {
					t.Errorf("%d hits", fault.Hits())
				}
				if kind == kmsg.OffsetCommit {
					if diff := cmp.Diff(map[int32]int64{0: 7}, broker.Committed("g", "events")); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

func TestDelayEachKind(t *testing.T) {
	for kind, ask := range asks {
		for name, opts := range map[string][]memkafka.FaultOption{"": nil, " applied": {memkafka.Applied()}} {
			t.Run(kind.Name()+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := withGroup(t)
					client, bystander := newAsker(t, broker), newAsker(t, broker, kgo.ClientID("bystander"))
					if _, err := ask(t.Context(), bystander); err != nil { // knows the brokers
						t.Fatal(err)
					}
					if _, err := ask(t.Context(), client); err != nil {
						t.Fatal(err)
					}
					fault := broker.Delay(kind, 5*time.Second, append(opts, memkafka.OfMember("asker"), memkafka.Times(1))...)
					begin := time.Now()
					var wg sync.WaitGroup
					wg.Go(func() {
						if _, err := ask(t.Context(), bystander); err != nil {
							t.Error(err)
						}
						if took := time.Since(begin); took > 500*time.Millisecond {
							t.Errorf("the bystander was held up for %v", took)
						}
					})
					got, err := ask(t.Context(), client)
					if err != nil || slices.ContainsFunc(got, func(code int16) bool { return code != 0 }) {
						t.Errorf("answered %v, %v", got, err)
					}
					if took := time.Since(begin); took < 5*time.Second || took > 6*time.Second {
						t.Errorf("answered after %v", took)
					}
					wg.Wait()
					if fault.Hits() != 1 {
						t.Errorf("%d hits", fault.Hits())
					}
					begin = time.Now()
					if _, err := ask(t.Context(), client); err != nil {
						t.Error(err)
					}
					if took := time.Since(begin); took > 500*time.Millisecond {
						t.Errorf("answered after %v, when the fault was over", took)
					}
				})
			})
		}
	}
}

// To heal a delay is to let go what it holds. So it can be as long as one wants.
func TestDelayUntilHealed(t *testing.T) {
	for name, opts := range map[string][]memkafka.FaultOption{"before": nil, "after": {memkafka.Applied()}} {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := withGroup(t)
				client := newAsker(t, broker)
				fault := broker.Delay(kmsg.OffsetCommit, time.Hour, opts...)
				done := make(chan struct{})
				go func() {
					defer close(done)
					if _, err := asks[kmsg.OffsetCommit](t.Context(), client); err != nil {
						t.Error(err)
					}
				}()
				fault.Wait(1)
				select {
				case <-done:
					t.Error("answered already")
				case <-time.After(20 * time.Millisecond):
				}
				if got := broker.Committed("g", "events")[1] == 7; got != (name == "after") {
					t.Errorf("committed before the delay is over: %t", got)
				}
				fault.Heal()
				<-done
				broker.WaitCommitted("g", "events", 14)
			})
		})
	}
}

func TestDisconnectEachKind(t *testing.T) {
	for kind, ask := range asks {
		for name, opts := range map[string][]memkafka.FaultOption{"": nil, " applied": {memkafka.Applied()}} {
			t.Run(kind.Name()+name, func(t *testing.T) {
				insideAndOutside(t, func(t *testing.T) {
					broker := withGroup(t)
					client := newAsker(t, broker)
					if _, err := ask(t.Context(), client); err != nil { // knows the brokers
						t.Fatal(err)
					}
					fault := broker.Disconnect(kind, append(opts, memkafka.OnBroker(0))...)
					_, err := ask(t.Context(), client)
					if err == nil || kind != kmsg.Produce && !errors.Is(err, io.EOF) {
						t.Errorf("got %v, want the end of the connection", err)
					}
					if fault.Hits() == 0 {
						t.Error("no hits")
					}
					fault.Heal()
					if _, err := ask(t.Context(), client); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Which of the faults leave the client in doubt, and with what outcome.
func TestApplied(t *testing.T) {
	for name, test := range map[string]struct {
		fault     func(*memkafka.Broker) *memkafka.Fault
		committed bool
	}{
		"Fail":               {func(b *memkafka.Broker) *memkafka.Fault { return b.Fail(kmsg.OffsetCommit, kerr.NotCoordinator) }, false},
		"Fail timed out":     {func(b *memkafka.Broker) *memkafka.Fault { return b.Fail(kmsg.OffsetCommit, kerr.RequestTimedOut) }, true},
		"Disconnect":         {func(b *memkafka.Broker) *memkafka.Fault { return b.Disconnect(kmsg.OffsetCommit) }, false},
		"Disconnect applied": {func(b *memkafka.Broker) *memkafka.Fault { return b.Disconnect(kmsg.OffsetCommit, memkafka.Applied()) }, true},
		"Swallow":            {func(b *memkafka.Broker) *memkafka.Fault { return b.Swallow(kmsg.OffsetCommit) }, false},
		"Swallow applied":    {func(b *memkafka.Broker) *memkafka.Fault { return b.Swallow(kmsg.OffsetCommit, memkafka.Applied()) }, true},
		"Delay":              {func(b *memkafka.Broker) *memkafka.Fault { return b.Delay(kmsg.OffsetCommit, time.Minute) }, false},
		"Delay applied": {func(b *memkafka.Broker) *memkafka.Fault {
			return b.Delay(kmsg.OffsetCommit, time.Minute, memkafka.Applied())
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := withGroup(t)
				client := newAsker(t, broker)
				test.fault(broker)
				begin := time.Now()
				codes, err := asks[kmsg.OffsetCommit](t.Context(), client)
				if err == nil && codes[0] == 0 {
					t.Error("the commit succeeded")
				}
				if took := time.Since(begin); took > 16*time.Second {
					t.Errorf("the client gave up after %v", took)
				}
				if got := broker.Committed("g", "events")[1] == 7; got != test.committed {
					t.Errorf("committed: %t", got)
				}
				if name == "Delay" { // it comes late, after the client has given up
					broker.WaitCommitted("g", "events", 14)
					if took := time.Since(begin); took < time.Minute || took > 61*time.Second {
						t.Errorf("committed after %v", took)
					}
				}
			})
		})
	}
}

// A member whose commits are not answered gives its connection up before its session times out, and goes on by another.
func TestSwallowedCommitsOfAMember(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2))
				client := newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
					kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
						if len(lost) > 0 {
							t.Errorf("lost %v", lost)
						}
					}),
				}, opts...)...)
				broker.Produce("events", "a", "b")
				records := read(t, client, 2)
				fault := broker.Swallow(kmsg.OffsetCommit, memkafka.OfGroup("g"), memkafka.OnTopic("events"))
				begin := time.Now()
				err := client.CommitRecords(t.Context(), records...)
				if err == nil {
					t.Error("the commit succeeded")
				}
				if took := time.Since(begin); took < 10*time.Second {
					t.Errorf("the client gave up after %v", took)
				}
				fault.Heal()
				if err := client.CommitRecords(t.Context(), records...); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				broker.WaitStable("g", 1)
				broker.WaitCommitted("g", "events", 2)
			})
		})
	}
}

// A fetch session names only what changes. A fault finds its partitions nevertheless.
func TestFetchFaultsInASession(t *testing.T) {
	for name, fault := range map[string]func(*memkafka.Broker, ...memkafka.FaultOption) *memkafka.Fault{
		"Fail": func(b *memkafka.Broker, opts ...memkafka.FaultOption) *memkafka.Fault {
			return b.Fail(kmsg.Fetch, kerr.NotLeaderForPartition, opts...)
		},
		"Delay": func(b *memkafka.Broker, opts ...memkafka.FaultOption) *memkafka.Fault {
			return b.Delay(kmsg.Fetch, time.Second, opts...)
		},
		"Disconnect": func(b *memkafka.Broker, opts ...memkafka.FaultOption) *memkafka.Fault {
			return b.Disconnect(kmsg.Fetch, opts...)
		},
		"Swallow": func(b *memkafka.Broker, opts ...memkafka.FaultOption) *memkafka.Fault {
			return b.Swallow(kmsg.Fetch, opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("others", 1))
				client := newClient(t, broker, kgo.ConsumeTopics("events", "others"))
				for range 3 { // the session is well under way
					broker.Produce("events", "a", "b")
					broker.Produce("others", "c")
					read(t, client, 3)
					time.Sleep(6 * time.Second)
				}
				f := fault(broker, memkafka.OnTopic("events"), memkafka.OnPartitions(1), memkafka.Times(2))
				f.Wait(2)
				broker.Produce("events", "a", "b")
				broker.Produce("others", "c")
				read(t, client, 3)
				time.Sleep(time.Minute)
				none := fault(broker, memkafka.OnTopic("elsewhere"))
				broker.Produce("events", "a", "b")
				read(t, client, 2)
				if none.Hits() != 0 {
					t.Errorf("%d hits on another topic", none.Hits())
				}
			})
		})
	}
}

// A member is known in requests that do not name it.
func TestFaultOfAMemberID(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2))
				a, b := broker.Join("g", "events", opts...), broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				id := ""
				for _, m := range broker.Cluster().GroupInfo("g").Members {
					if m.ClientID == "rival-1" {
						id = m.MemberID
					}
				}
				time.Sleep(10 * time.Second)
				fault := broker.Disconnect(kmsg.Fetch, memkafka.OfMember(id))
				failed := broker.Fail(kmsg.Fetch, kerr.NotLeaderForPartition, memkafka.OfMember(id))
				time.Sleep(6 * time.Second) // a fetch was under way
				broker.Produce("events", "a", "b")
				time.Sleep(10 * time.Second)
				if len(a.Consumed()) != 0 || len(b.Consumed()) != 1 || fault.Hits() == 0 {
					t.Errorf("%d and %d records, %d hits", len(a.Consumed()), len(b.Consumed()), fault.Hits())
				}
				fault.Heal()
				failed.Wait(1)
				failed.Heal()
				time.Sleep(20 * time.Second)
				if len(a.Consumed()) != 1 {
					t.Errorf("%d records after the fault", len(a.Consumed()))
				}
			})
		})
	}
}

func TestFaultsThatMakeNoSense(t *testing.T) {
	var none *kerr.Error
	for name, test := range map[string]struct {
		do   func(*memkafka.Broker)
		want []string
	}{
		"kind":       {func(b *memkafka.Broker) { b.Fail(kmsg.Key(12345), kerr.NotCoordinator) }, []string{"no such kind"}},
		"error":      {func(b *memkafka.Broker) { b.Fail(kmsg.Fetch, none) }, []string{"Fail(Fetch, nil): which error"}},
		"delay":      {func(b *memkafka.Broker) { b.Delay(kmsg.Fetch, 0) }, []string{"Delay(Fetch, 0s)", "positive"}},
		"nil option": {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, nil) }, []string{"an option is nil"}},
		"topic": {func(b *memkafka.Broker) { b.Fail(kmsg.Heartbeat, kerr.NotCoordinator, memkafka.OnTopic("events")) },
			[]string{"Fail(Heartbeat, NOT_COORDINATOR)", "OnTopic", "Heartbeat requests name no topics", "Fetch", "OffsetCommit"}},
		"partitions": {func(b *memkafka.Broker) { b.Disconnect(kmsg.Metadata, memkafka.OnPartitions(1)) },
			[]string{"OnPartitions", "Metadata requests name no partitions"}},
		"group": {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OfGroup("g")) },
			[]string{"OfGroup", "Fetch requests name no groups", "JoinGroup"}},
		"no partitions":   {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OnPartitions()) }, []string{"which partitions?"}},
		"bad partition":   {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OnPartitions(-1)) }, []string{"no partition -1"}},
		"broker":          {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OnBroker(1)) }, []string{"no broker 1, only 0 to 0"}},
		"times":           {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.Times(0)) }, []string{"0 times"}},
		"empty member":    {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OfMember("")) }, []string{"which member?"}},
		"twice":           {func(b *memkafka.Broker) { b.Swallow(kmsg.Fetch, memkafka.OnTopic("a"), memkafka.OnTopic("b")) }, []string{"OnTopic is given twice"}},
		"applied failure": {func(b *memkafka.Broker) { b.Fail(kmsg.Fetch, kerr.NotCoordinator, memkafka.Applied()) }, []string{"RequestTimedOut"}},
		"session": {func(b *memkafka.Broker) { b.Fail(kmsg.Fetch, kerr.FetchSessionIDNotFound, memkafka.OnTopic("events")) },
			[]string{"FETCH_SESSION_ID_NOT_FOUND", "leave out OnTopic"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := runFake(t, func(t testing.TB) {
				test.do(memkafka.New(t, memkafka.Topic("events", 2)))
				t.Errorf("went on")
			})
			mustContain(t, got, append(test.want, "memkafka: ")...)
			if strings.Contains(got, "went on") {
				t.Error("the test went on")
			}
		})
	}
}

func TestFaultWaitSaysWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 2))
		fault := broker.Fail(kmsg.OffsetCommit, kerr.NotCoordinator, memkafka.OnTopic("events"), memkafka.OnPartitions(0, 1), memkafka.Times(3))
		begin := time.Now()
		err := panicOf(func() { fault.Wait(1) })
		if err == nil {
			t.Fatal("Wait returned")
		}
		mustContain(t, err.Error(), "memkafka: wait for 1 hits of", "not within 1m0s: it has hit 0 times",
			`Fail(OffsetCommit, NOT_COORDINATOR, OnTopic("events"), OnPartitions(0, 1), Times(3))`)
		if took := time.Since(begin); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("took %v", took)
		}
		fault.Wait(0)
		broker.Close()
		mustContain(t, panicOf(func() { fault.Wait(1) }).Error(), "the broker is closed")
		mustContain(t, panicOf(func() { broker.Fail(kmsg.Fetch, kerr.NotCoordinator) }).Error(), "the broker is closed")
		fault.Heal()
	})
}

// The group of a consumer is in a rebalance while its commit is under way.
func ExampleBroker_Fail() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	client, err := kgo.NewClient(append(broker.ClientOptions(),
		kgo.ConsumeTopics("events"), kgo.ConsumerGroup("ingest"), kgo.DisableAutoCommit())...)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	broker.Produce("events", "a")
	ctx := context.Background()
	records := client.PollFetches(ctx).Records()
	fault := broker.Fail(kmsg.OffsetCommit, kerr.RebalanceInProgress, memkafka.OfGroup("ingest"), memkafka.Times(1))
	fmt.Println(errors.Is(client.CommitRecords(ctx, records...), kerr.RebalanceInProgress))
	fmt.Println(client.CommitRecords(ctx, records...))
	fmt.Println(fault.Hits(), broker.Committed("ingest", "events"))
	// Output:
	// true
	// <nil>
	// 1 map[0:1]
}
