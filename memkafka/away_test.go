package memkafka_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What happens while a static member is away counts when it comes back: everything is somebody's, and nothing two members'.
func TestAStaticMemberComesBackToAnotherGroup(t *testing.T) {
	for name, test := range map[string]struct {
		others    int
		meanwhile func(broker *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival
		total     int
	}{
		"the other one left": {1, func(_ *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival {
			others[0].Leave()
			return nil
		}, 6},
		"one of two left": {2, func(_ *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival {
			others[0].Leave()
			return others[1:]
		}, 6},
		"another one joined": {1, func(broker *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival {
			return append(others, broker.Join("g", "events", kgo.ServerSideBalancer()))
		}, 6},
		"the topic has more partitions": {1, func(broker *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival {
			broker.AddPartitions("events", 9)
			return others
		}, 9},
		"the topic has more partitions, and nobody was there": {0, func(broker *memkafka.Broker, others []*memkafka.Rival) []*memkafka.Rival {
			broker.AddPartitions("events", 9)
			return others
		}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 6))
				static := broker.Join("g", "events", kgo.ServerSideBalancer(), kgo.InstanceID("i"))
				var others []*memkafka.Rival
				for range test.others {
					others = append(others, broker.Join("g", "events", kgo.ServerSideBalancer()))
				}
				broker.WaitStable("g", 1+test.others)
				static.Leave()
				others = test.meanwhile(broker, others)
				time.Sleep(15 * time.Second)
				static.ComeBack()
				time.Sleep(20 * time.Second) // it does not take the end of a session
				broker.WaitStable("g", 1+len(others))
				mustOwnAll(t, test.total, append(others, static)...)
			})
		})
	}
}

// A client that leaves may be gone before there is an answer. Its session ends all the same.
func TestAStaticMemberLeavesWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		static := broker.Join("g", "events", kgo.ServerSideBalancer(), kgo.InstanceID("i"))
		other := broker.Join("g", "events", kgo.ServerSideBalancer())
		broker.WaitStable("g", 2)
		var id string
		for _, m := range broker.Group("g").Members {
			if m.InstanceID == "i" {
				id = m.ID
			}
		}
		static.Die() // no heartbeat comes behind the leave
		conn := connect(t, broker)
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.InstanceID = "g", id, -2, kmsg.StringPtr("i")
		if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		time.Sleep(30 * time.Second)
		if got := other.Assigned(); len(got) != 2 {
			t.Errorf("within the session of the one that is away, the other has %v, not half", got)
		}
		time.Sleep(30 * time.Second)
		mustOwnAll(t, 4, other)
	})
}

// One that came back has taken the place of what it was before, which is not expired later.
func TestAStaticMemberThatCameBackIsNotExpired(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2))
				static := broker.Join("g", "events", append(slices.Clone(opts), kgo.InstanceID("i"))...)
				broker.WaitStable("g", 1)
				static.Leave()
				static.ComeBack()
				broker.WaitStable("g", 1)
				time.Sleep(2 * time.Minute)
				if log := broker.Log(); strings.Contains(log, "is expired") {
					t.Errorf("the log says that a member is expired:\n%s", log)
				}
			})
		})
	}
}
