package memkafka_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestCommitted(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		if got := broker.Committed("g", "events"); got == nil || len(got) != 0 {
			t.Errorf("%v, before there is a group", got)
		}
		admin := kadm.NewClient(newClient(t, broker))
		var offsets kadm.Offsets
		offsets.AddOffset("events", 0, 0, -1)
		offsets.AddOffset("events", 2, 7, -1)
		if _, err := admin.CommitOffsets(t.Context(), "g", offsets); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[int32]int64{0: 0, 2: 7}, broker.Committed("g", "events")); diff != "" {
			t.Error(diff)
		}
		if got := broker.Committed("g", "others"); len(got) != 0 {
			t.Errorf("%v for a topic without commits", got)
		}
		broker.WaitCommitted("g", "events", 7)
	})
}

func TestWaitCommitted(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
		stop := memkafka.Start(t, consume(client))
		broker.WaitCommitted("g", "events", 0)
		broker.Produce("events", "a", "b", "c", "d")
		broker.WaitCommitted("g", "events", 4)
		broker.Produce("events", "e")
		broker.WaitCommitted("g", "events", 5)
		if diff := cmp.Diff(map[int32]int64{0: 2, 1: 2, 2: 1}, broker.Committed("g", "events")); diff != "" {
			t.Error(diff)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestWaitsSayWhatTheySaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 3))
		client := newClient(t, broker, kgo.ClientID("me"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
		memkafka.Start(t, consume(client))
		broker.Produce("events", "a", "b")
		broker.WaitCommitted("g", "events", 2)
		for name, test := range map[string]struct {
			do   func()
			took time.Duration
			want []string
		}{
			"committed": {
				func() { broker.WaitCommitted("g", "events", 3) }, time.Minute,
				[]string{`group "g" has committed 3 on topic "events"`, "not within 1m0s", "it has committed 2: partition 0: 1, partition 1: 1"},
			},
			"nothing committed": {
				func() { broker.WaitCommitted("h", "events", 3) }, time.Minute,
				[]string{"it has committed 0: nothing"},
			},
			"stable": {
				func() { broker.WaitStable("g", 2) }, 2 * time.Minute,
				[]string{`group "g" is stable with 2 members`, "not within 2m0s", "it is Stable with 1 members", "me-", `client "me" at 10.`, "events[0 1 2]"},
			},
			"no group": {
				func() { broker.WaitStable("h", 1) }, 2 * time.Minute,
				[]string{"it is Empty with 0 members"},
			},
		} {
			begin := time.Now()
			err := panicOf(test.do)
			if err == nil {
				t.Errorf("%s: did not fail", name)
				continue
			}
			mustContain(t, err.Error(), test.want...)
			if took := time.Since(begin); took < test.took || took > test.took+time.Second {
				t.Errorf("%s: took %v", name, took)
			}
		}
	})
}

func TestMembers(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 3))
		broker.WaitStable("g", 0)
		if n := broker.Members("g"); n != 0 {
			t.Errorf("%d members of no group", n)
		}
		rival := broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()))
		broker.WaitStable("g", 1)
		if n := broker.Members("g"); n != 1 {
			t.Errorf("%d members", n)
		}
		rival.Leave()
		if n := broker.Members("g"); n != 0 {
			t.Errorf("%d members after the only one left", n)
		}
		broker.WaitStable("g", 0)
	})
}

// Cooperative members give up partitions in one round and get them in the next: in between, the group is stable and
// something is assigned to nobody.
func TestWaitStableWaitsForAllPartitions(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 7))
				var rivals []*memkafka.Rival
				for i := range 4 {
					rivals = append(rivals, broker.Join("g", "events", opts...))
					broker.WaitStable("g", i+1)
					mustOwnAll(t, 7, rivals...)
				}
			})
		})
	}
}
