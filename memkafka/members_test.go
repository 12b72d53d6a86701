package memkafka_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestGroup(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 3))
				if diff := cmp.Diff(memkafka.GroupInfo{Name: "g", State: "Empty"}, broker.Group("g")); diff != "" {
					t.Errorf("no group: %s", diff)
				}
				rival := broker.Join("g", "events", append([]kgo.Opt{kgo.ClientID("me"), kgo.InstanceID("i")}, opts...)...)
				broker.WaitStable("g", 1)
				g := broker.Group("g")
				if g.State != "Stable" || g.Epoch < 1 || len(g.Members) != 1 {
					t.Fatalf("%+v", g)
				}
				m := g.Members[0]
				if m.ID == "" || m.ClientID != "me" || m.InstanceID != "i" || !strings.HasPrefix(m.Host, "10.") {
					t.Errorf("%+v", m)
				}
				if diff := cmp.Diff(map[string][]int32{"events": {0, 1, 2}}, m.Assigned); diff != "" {
					t.Error(diff)
				}
				rival.Die()
			})
		})
	}
}

// A member that is kicked out loses its partitions, learns so, and comes back.
func TestKick(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				lost := make(chan map[string][]int32, 10)
				newClient(t, broker, append([]kgo.Opt{
					kgo.ClientID("me"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
					kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
						if len(m) > 0 {
							lost <- m
						}
					}),
				}, opts...)...)
				broker.WaitStable("g", 1)
				broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)

				for _, by := range []func(memkafka.Member) string{
					func(m memkafka.Member) string { return m.ClientID },
					func(m memkafka.Member) string { return m.ID },
				} {
					var me memkafka.Member
					for _, m := range broker.Group("g").Members {
						if m.ClientID == "me" {
							me = m
						}
					}
					begin := time.Now()
					broker.Kick("g", by(me))
					if n := broker.Members("g"); n != 1 {
						t.Errorf("%d members after the kick", n)
					}
					if diff := cmp.Diff(me.Assigned, <-lost, cmp.Transformer("sort", func(ps []int32) int { return len(ps) })); diff != "" {
						t.Errorf("lost: %s", diff)
					}
					if took := time.Since(begin); took > 6*time.Second {
						t.Errorf("learned it after %v", took)
					}
					broker.WaitStable("g", 2)
				}
			})
		})
	}
}

func TestKickAStaticMember(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				rival := broker.Join("g", "events", append([]kgo.Opt{kgo.InstanceID("i")}, opts...)...)
				broker.WaitStable("g", 1)
				rival.Die()
				broker.Kick("g", "i")
				broker.WaitStable("g", 0)
			})
		})
	}
}

func TestForceRebalance(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			run := insideAndOutside
			if name == "KIP-848" {
				run = synctest.Test // heartbeats are the broker's to decide on, each 5 s
			}
			run(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				opts := append([]kgo.Opt{kgo.HeartbeatInterval(20 * time.Millisecond)}, opts...)
				a := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 1)
				b := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				has := [][]int32{a.Assigned(), b.Assigned()}
				for range 3 {
					epoch := broker.Group("g").Epoch
					broker.ForceRebalance("g")
					for broker.Group("g").Epoch == epoch {
						time.Sleep(time.Millisecond)
					}
					broker.WaitStable("g", 2)
					if diff := cmp.Diff(has, [][]int32{a.Assigned(), b.Assigned()}); diff != "" {
						t.Error(diff)
					}
				}
			})
		})
	}
}

// A KIP-848 member is in its group a moment before it has been told so. The two need not wait for that, nor take the group
// for a classic one. The moment is short, in real time, so there are many rounds.
func TestKIP848GroupThatBegins(t *testing.T) {
	for range 60 {
		broker := open(t, memkafka.Topic("events", 1))
		join := func(group string) {
			broker.Join(group, "events", kgo.ServerSideBalancer(), kgo.ClientID("me"))
			for broker.Members(group) == 0 {
				runtime.Gosched()
			}
		}
		join("kicked")
		broker.Kick("kicked", "me") // fails if nobody is removed
		join("forced")
		broker.ForceRebalance("forced")
		if epoch := broker.Group("forced").Epoch; epoch < 2 {
			t.Fatalf("epoch %d after the rebalance", epoch)
		}
		broker.Close()
	}
}

func TestExpireOffsets(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 2))
				client := newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				}, opts...)...)
				broker.Produce("events", "a", "b", "c")
				if err := client.CommitRecords(t.Context(), read(t, client, 3)...); err != nil {
					t.Fatal(err)
				}
				broker.WaitCommitted("g", "events", 3)
				client.Close()
				broker.WaitStable("g", 0)
				broker.ExpireOffsets("g")
				if got := broker.Committed("g", "events"); len(got) != 0 {
					t.Errorf("%v is left", got)
				}
				again := newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				}, opts...)...)
				read(t, again, 3) // from the start
			})
		})
	}
}

func TestBadGroupOperations(t *testing.T) {
	broker := open(t, memkafka.Topic("events", 4))
	broker.Join("g", "events", kgo.ClientID("twin"))
	broker.Join("g", "events", kgo.ClientID("twin"))
	broker.WaitStable("g", 2)
	for name, test := range map[string]struct {
		do   func()
		want []string
	}{
		"kick nobody":    {func() { broker.Kick("g", "me") }, []string{`kick "me" out of group "g": it is not a member`, "twin-"}},
		"kick a twin":    {func() { broker.Kick("g", "twin") }, []string{"2 members have that client ID", "twin-"}},
		"kick at nobody": {func() { broker.Kick("h", "me") }, []string{"no members", "Empty"}},
		"rebalance":      {func() { broker.ForceRebalance("h") }, []string{`group "h"`, "no members"}},
		"expire":         {func() { broker.ExpireOffsets("g") }, []string{"2 members", "stop them first"}},
		"expire nothing": {func() { broker.ExpireOffsets("h") }, []string{"committed nothing"}},
	} {
		err := panicOf(test.do)
		if err == nil {
			t.Errorf("%s: did not fail", name)
			continue
		}
		mustContain(t, err.Error(), append(test.want, "memkafka: ")...)
	}
}

// A member that is prompt waits for one that is slow, longer than its session. Kafka does not expire it, and neither does
// memkafka, unlike kfake by itself.
func TestMembersThatWaitInAJoinAreNotExpired(t *testing.T) {
	for _, name := range []string{"cooperative", "eager"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 6))
				lost := func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
					if len(m) > 0 {
						t.Errorf("lost %v", m)
					}
				}
				join := func(id string, session time.Duration, hold time.Duration) {
					newClient(t, broker, append([]kgo.Opt{
						kgo.ClientID(id), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
						kgo.SessionTimeout(session), kgo.RebalanceTimeout(2 * time.Minute), kgo.OnPartitionsLost(lost),
						kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
							if len(m) > 0 {
								time.Sleep(hold)
							}
						}),
					}, protocols[name]...)...)
				}
				join("prompt", 10*time.Second, 0)
				broker.WaitStable("g", 1)
				join("slow", 45*time.Second, 100*time.Second)
				broker.WaitStable("g", 2)
				before := make(map[string]string)
				for _, m := range broker.Group("g").Members {
					before[m.ClientID] = m.ID
				}
				broker.Join("g", "events", protocols[name]...)
				time.Sleep(90 * time.Second)
				if state := broker.Group("g").State; name == "eager" && state != "PreparingRebalance" {
					t.Errorf("the group is %s while a member is slow", state)
				}
				broker.WaitStable("g", 3)
				for _, m := range broker.Group("g").Members {
					if id, ok := before[m.ClientID]; ok && id != m.ID {
						t.Errorf("%s was expired: it is %s now", id, m.ID)
					}
				}
				mustContain(t, broker.Log(), `client "prompt"`)
				if strings.Contains(broker.Log(), "expired") {
					t.Errorf("expired: %s", broker.Log())
				}
			})
		})
	}
}

// A member that is removed from the group, as an administrator does, loses its partitions and joins again.
func ExampleBroker_Kick() {
	broker, err := memkafka.Open(memkafka.Topic("events", 4))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	broker.Join("ingest", "events", kgo.ClientID("a"), kgo.HeartbeatInterval(10*time.Millisecond))
	broker.WaitStable("ingest", 1)

	before := broker.Group("ingest").Members[0]
	broker.Kick("ingest", "a")
	fmt.Println(broker.Members("ingest"))
	broker.WaitStable("ingest", 1)
	after := broker.Group("ingest").Members[0]
	fmt.Println(after.ID != before.ID, after.Assigned)
	// Output:
	// 0
	// true map[events:[0 1 2 3]]
}
