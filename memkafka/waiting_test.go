package memkafka_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var classicMembers = map[string][]kgo.Opt{
	"dynamic":         {kgo.Balancers(kgo.RangeBalancer())},
	"static":          {kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID("b")},
	"dynamic, sticky": {kgo.Balancers(kgo.StickyBalancer())},
}

// holder joins as a member that holds each revocation for so long, and so all others in their joins.
func holder(t *testing.T, broker *memkafka.Broker, hold time.Duration, opts ...kgo.Opt) {
	t.Helper()
	newClient(t, broker, append([]kgo.Opt{
		kgo.ClientID("holder"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
		kgo.RebalanceTimeout(2 * time.Minute),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) {
			if len(m) > 0 {
				time.Sleep(hold)
			}
		}),
	}, opts...)...)
	broker.WaitStable("g", 1)
}

// mustGoAfter checks after what time from now on the group, which has so many members, has one less, and does without it.
func mustGoAfter(t *testing.T, broker *memkafka.Broker, members int, least, most time.Duration) {
	t.Helper()
	begin := time.Now()
	for broker.Members("g") == members && time.Since(begin) < 10*time.Minute {
		time.Sleep(50 * time.Millisecond)
	}
	if took := time.Since(begin); took < least || took > most {
		t.Errorf("the member that died was a member for %v, not %v to %v", took, least, most)
	}
	broker.WaitStable("g", members-1)
}

// A member that dies in a join is one until that has ended, and for a session.
func TestAMemberDiesInItsJoin(t *testing.T) {
	for name, opts := range classicMembers {
		for _, isNew := range []bool{true, false} {
			name := map[bool]string{true: "new, ", false: "old, "}[isNew] + name
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic("events", 4))
					holder(t, broker, 40*time.Second, opts[0])
					b := broker.Join("g", "events", append([]kgo.Opt{kgo.SessionTimeout(10 * time.Second)}, opts...)...)
					members := 2
					if !isNew {
						broker.WaitStable("g", 2)
						broker.Join("g", "events", opts[0])
						members = 3
					}
					time.Sleep(5 * time.Second) // heartbeats bring it to join again
					if state := broker.Group("g").State; state != "PreparingRebalance" {
						t.Fatalf("the group is %s", state)
					}
					b.Die()
					for broker.Group("g").State == "PreparingRebalance" {
						if n := broker.Members("g"); n != members {
							t.Fatalf("%d members before the join ended", n)
						}
						time.Sleep(50 * time.Millisecond)
					}
					mustGoAfter(t, broker, members, 9900*time.Millisecond, 10300*time.Millisecond)
					mustContain(t, broker.Log(), "not there to be told", "is expired: nothing was heard of it for 10s")
				})
			})
		}
	}
}

// One that died may be made the leader, by which the others wait in the sync until it is expired. Who is made the leader is
// random when the last one is gone.
func TestTheLeaderDiedInItsJoin(t *testing.T) {
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic("events", 4))
			first := broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()), kgo.RebalanceTimeout(20*time.Second))
			broker.WaitStable("g", 1)
			first.Hang()
			var dead []*memkafka.Rival
			for range 4 {
				dead = append(dead, broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()), kgo.RebalanceTimeout(20*time.Second)))
			}
			alive := broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()), kgo.RebalanceTimeout(20*time.Second))
			time.Sleep(5 * time.Second)
			for _, r := range dead {
				r.Die()
			}
			first.Die()
			time.Sleep(20 * time.Second) // to the end of the join, and then a session
			begin := time.Now()
			broker.WaitStable("g", 1)
			if took := time.Since(begin); took > 50*time.Second {
				t.Errorf("it took %v", took)
			}
			mustOwnAll(t, 4, alive)
		})
	}
}

// slowSync makes three members, of which the followers wait in a sync until they are released.
func slowSync(t *testing.T, broker *memkafka.Broker, opts []kgo.Opt) (others []*memkafka.Rival, follower *memkafka.Rival, release func()) {
	t.Helper()
	others = append(others, broker.Join("g", "events", kgo.ClientID("leader"), opts[0]))
	broker.WaitStable("g", 1)
	others = append(others, broker.Join("g", "events", opts[0]))
	broker.WaitStable("g", 2)
	slow := broker.Delay(kmsg.SyncGroup, time.Hour, memkafka.OfMember("leader"))
	follower = broker.Join("g", "events", append([]kgo.Opt{kgo.ClientID("follower"), kgo.SessionTimeout(10 * time.Second)}, opts...)...)
	time.Sleep(20 * time.Second)
	if state := broker.Group("g").State; state != "CompletingRebalance" {
		t.Fatalf("the group is %s", state)
	}
	return others, follower, slow.Heal
}

// A member that dies in a sync is one until that has ended, and for a session.
func TestAMemberDiesInItsSync(t *testing.T) {
	for name, opts := range classicMembers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				_, follower, release := slowSync(t, broker, opts)
				follower.Die()
				time.Sleep(15 * time.Second)
				if n := broker.Members("g"); n != 3 {
					t.Fatalf("%d members before the sync ended", n)
				}
				release()
				mustGoAfter(t, broker, 3, 9900*time.Millisecond, 10300*time.Millisecond)
			})
		})
	}
}

// A member that waits is told at once that it is none any more, and comes back as another.
func TestKickAMemberThatWaits(t *testing.T) {
	for name, opts := range classicMembers {
		for _, in := range []string{"join", "sync"} {
			t.Run(name+" "+in, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic("events", 4))
					members, release := 2, func() {}
					if in == "join" {
						holder(t, broker, 20*time.Second, opts[0])
						broker.Join("g", "events", append([]kgo.Opt{kgo.ClientID("follower")}, opts...)...)
						time.Sleep(5 * time.Second)
					} else {
						_, _, release = slowSync(t, broker, opts)
						members = 3
					}
					follower := func() (id string) {
						for _, m := range broker.Group("g").Members {
							if m.ClientID == "follower" {
								id = m.ID
							}
						}
						return id
					}
					begin, before := time.Now(), follower()
					broker.Kick("g", before)
					if id := follower(); id == before {
						t.Error("it is still a member")
					}
					time.Sleep(time.Second)
					mustContain(t, broker.Log(), in+"s: UNKNOWN_MEMBER_ID")
					if id := follower(); id == before || id == "" {
						t.Errorf("a second later it is %q; it was %q", id, before)
					}
					release()
					broker.WaitStable("g", members)
					if took := time.Since(begin); took > 20*time.Second {
						t.Errorf("it was back after %v", took)
					}
				})
			})
		}
	}
}

// A member goes that waits in a sync: the others go on without it at once.
func TestLeaveDuringASync(t *testing.T) {
	for name, opts := range classicMembers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				alive, follower, release := slowSync(t, broker, opts)
				begin := time.Now()
				if strings.HasPrefix(name, "static") {
					follower.Die()
					follower.ComeBack() // in its own place
					alive = append(alive, follower)
				} else {
					follower.Leave()
				}
				release()
				broker.WaitStable("g", len(alive))
				mustOwnAll(t, 4, alive...)
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("stable after %v", took)
				}
			})
		})
	}
}

// A member that has lost its connection while it waits in a sync, and joins again, is waited for no longer.
func TestJoinAgainFromASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		broker.Join("g", "events", kgo.ClientID("leader"), kgo.Balancers(kgo.RangeBalancer()))
		broker.WaitStable("g", 1)
		host := broker.Host()
		client, err := kgo.NewClient(append(host.ClientOptions(), kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeTopics("events"),
			kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		broker.WaitStable("g", 2)
		slow := broker.Delay(kmsg.SyncGroup, time.Hour, memkafka.OfMember("leader"))
		broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()))
		time.Sleep(10 * time.Second)
		if state := broker.Group("g").State; state != "CompletingRebalance" {
			t.Fatalf("the group is %s", state)
		}
		host.Cut()
		time.Sleep(time.Second)
		host.Heal()
		time.Sleep(10 * time.Second)
		slow.Heal()
		begin := time.Now()
		broker.WaitStable("g", 3)
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("stable after %v", took)
		}
	})
}

// What counts is when the session began, not when the wait did.
func TestAWaitThatBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		broker.Delay(kmsg.JoinGroup, 9*time.Second, memkafka.OfMember("follower"), memkafka.Applied())
		_, _, release := slowSync(t, broker, classicMembers["dynamic"])
		time.Sleep(20 * time.Second)
		release()
		broker.WaitStable("g", 3)
		if log := broker.Log(); strings.Contains(log, "expired") || strings.Contains(log, "UNKNOWN_MEMBER_ID") {
			t.Errorf("a member that waits was expired:\n%s", log)
		}
	})
}

// The rebalance timeout is one, however many join meanwhile, and how often.
func TestAJoinIsNotHeldUpForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		opts := []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
		hangs := broker.Join("g", "events", opts...)
		broker.WaitStable("g", 1)
		hangs.Hang()
		begin := time.Now()
		var rivals []*memkafka.Rival
		for range 3 {
			rivals = append(rivals, broker.Join("g", "events", opts...))
			time.Sleep(19 * time.Second)
		}
		broker.WaitStable("g", 3)
		if took := time.Since(begin); took < time.Minute || took > 62*time.Second {
			t.Errorf("stable after %v", took)
		}
		mustOwnAll(t, 4, rivals...)
		mustContain(t, broker.Log(), "did not join again within 1m0s")
	})
}
