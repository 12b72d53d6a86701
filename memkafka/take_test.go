package memkafka_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

var classic = []string{"cooperative", "eager"}

func TestTake(t *testing.T) {
	for _, name := range classic {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				opts := append([]kgo.Opt{kgo.HeartbeatInterval(20 * time.Millisecond)}, protocols[name]...)
				broker := memkafka.New(t, memkafka.Topic("events", 8), memkafka.Topic("others", 2))
				var mu sync.Mutex
				var revoked []int32
				newClient(t, broker, append([]kgo.Opt{
					kgo.ClientID("me"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
					kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
						mu.Lock()
						defer mu.Unlock()
						revoked = append(revoked, m["events"]...)
					}),
				}, opts...)...)
				mine := func() []int32 {
					for _, m := range broker.Group("g").Members {
						if m.ClientID == "me" {
							return m.Assigned["events"]
						}
					}
					return nil
				}
				broker.WaitStable("g", 1)
				rival := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)

				for _, take := range [][]int32{{3}, {0, 7}, {7, 6, 7}, {}, {0, 1, 2, 3, 4, 5, 6, 7}, {5}} {
					rival.Take(take...)
					broker.WaitStable("g", 2)
					want := slices.Compact(slices.Sorted(slices.Values(take)))
					if got := rival.Assigned(); !slices.Equal(got, want) {
						t.Errorf("Take%v: the rival has %v", take, got)
					}
					if got := mine(); len(got) != 8-len(want) {
						t.Errorf("Take%v: I have %v", take, got)
					}
				}
				// It stays so in later rebalances, and nothing moves that need not.
				before := mine()
				mu.Lock()
				revoked = nil
				mu.Unlock()
				broker.ForceRebalance("g")
				broker.WaitStable("g", 2)
				if got := rival.Assigned(); !slices.Equal(got, []int32{5}) {
					t.Errorf("after another rebalance the rival has %v", got)
				}
				if diff := cmp.Diff(before, mine()); diff != "" {
					t.Error(diff)
				}
				mu.Lock()
				if name == "cooperative" && len(revoked) > 0 {
					t.Errorf("revoked %v for nothing", revoked)
				}
				mu.Unlock()

				third := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 3)
				if got := rival.Assigned(); !slices.Equal(got, []int32{5}) {
					t.Errorf("with a third member the rival has %v", got)
				}
				if n := len(third.Assigned()); n < 3 || n > 4 {
					t.Errorf("the third member has %d partitions of the 7 others", n)
				}
				third.Take(5, 6)
				broker.WaitStable("g", 3)
				if diff := cmp.Diff([][]int32{nil, {5, 6}}, [][]int32{rival.Assigned(), third.Assigned()}); diff != "" {
					t.Error(diff)
				}
				rival.Leave()
				third.Leave()
				broker.WaitStable("g", 1)
				if got := mine(); len(got) != 8 {
					t.Errorf("alone, I have %v", got)
				}
			})
		})
	}
}

// Take moves what it has to and nothing else, and under the cooperative protocol in two rounds, so that nobody ever has
// a partition that another one still has.
func TestTakeIsCooperative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 6))
		owners := make(map[int32]string)
		var mu sync.Mutex
		join := func(id string) {
			newClient(t, broker, kgo.ClientID(id), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
					mu.Lock()
					defer mu.Unlock()
					for _, p := range m["events"] {
						if owner := owners[p]; owner != "" {
							t.Errorf("%s gets partition %d, which %s has", id, p, owner)
						}
						owners[p] = id
					}
				}),
				kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
					time.Sleep(2 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					for _, p := range m["events"] {
						owners[p] = ""
					}
				}))
		}
		join("a")
		broker.WaitStable("g", 1)
		join("b")
		broker.WaitStable("g", 2)
		rival := broker.Join("g", "events")
		broker.WaitStable("g", 3)
		for _, take := range [][]int32{{0}, {1, 2}, {3, 4, 5}, {0, 5}} {
			rival.Take(take...)
			broker.WaitStable("g", 3)
			if got := rival.Assigned(); !slices.Equal(got, take) {
				t.Errorf("Take%v: the rival has %v", take, got)
			}
		}
	})
}

func TestTakeAlone(t *testing.T) {
	for _, name := range classic {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				rival := broker.Join("g", "events", protocols[name]...)
				rival.Take(2) // before it is a member
				broker.WaitStable("g", 1)
				mustOwnAll(t, 4, rival) // nobody else could have the rest
				broker.Join("g", "events", protocols[name]...)
				broker.WaitStable("g", 2)
				if got := rival.Assigned(); !slices.Equal(got, []int32{2}) {
					t.Errorf("the rival has %v", got)
				}
			})
		})
	}
}

func TestHang(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				a := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 1)
				a.Hang()
				a.Hang()
				b := broker.Join("g", "events", opts...)
				time.Sleep(50 * time.Second) // longer than its session: heartbeats go on
				if n := broker.Members("g"); n != 2 && name != "eager" {
					t.Errorf("%d members", n)
				}
				if got := b.Assigned(); len(got) != 0 {
					t.Errorf("b has %v while a holds them", got)
				}
				mustContain(t, broker.Log(), `rival "rival-1" holds on to events[`)
				begin := time.Now()
				a.Resume()
				a.Resume()
				broker.WaitStable("g", 2)
				if took := time.Since(begin); took > 6*time.Second {
					t.Errorf("went on after %v", took)
				}
				mustOwnAll(t, 4, a, b)
			})
		})
	}
}

// A rival that hangs for too long is out.
func TestHangTooLong(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				a := broker.Join("g", "events", append([]kgo.Opt{kgo.RebalanceTimeout(20 * time.Second)}, opts...)...)
				broker.WaitStable("g", 1)
				a.Hang()
				b := broker.Join("g", "events", append([]kgo.Opt{kgo.RebalanceTimeout(20 * time.Second)}, opts...)...)
				time.Sleep(15 * time.Second)
				if name == "cooperative" { // the rebalance is over; only the partitions that are to move are missing
					time.Sleep(3 * time.Minute)
					if n := len(a.Assigned()); n != 2 || broker.Members("g") != 2 {
						t.Errorf("it has %d partitions", n)
					}
				} else {
					begin := time.Now()
					broker.WaitStable("g", 1)
					if took := time.Since(begin); took > 16*time.Second { // 5 s later than 20 s, and a look at it
						t.Errorf("out after %v", took)
					}
					mustOwnAll(t, 4, b)
				}
				a.Die() // also while it hangs
			})
		})
	}
}

func TestComeBack(t *testing.T) {
	for name, opts := range protocols {
		for how, end := range map[string]func(*memkafka.Rival){"Die": (*memkafka.Rival).Die, "Leave": (*memkafka.Rival).Leave} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic("events", 4))
					broker.Join("g", "events", opts...)
					rival := broker.Join("g", "events", opts...)
					broker.WaitStable("g", 2)
					host := hostOf(broker, "rival-2")
					rival.Hang()
					for range 2 {
						end(rival)
						broker.WaitStable("g", 1)
						rival.ComeBack()
						broker.WaitStable("g", 2)
						if n := len(rival.Assigned()); n != 2 {
							t.Errorf("%d partitions", n)
						}
						if again := hostOf(broker, "rival-2"); again != host {
							t.Errorf("back at %s, and not at %s", again, host)
						}
					}
					time.Sleep(10 * time.Second)
					before := len(rival.Consumed())
					broker.Produce("events", "a", "b", "c", "d")
					time.Sleep(10 * time.Second)
					if n := len(rival.Consumed()) - before; n != 2 {
						t.Errorf("%d records", n)
					}
				})
			})
		}
	}
}

func hostOf(broker *memkafka.Broker, clientID string) string {
	for _, m := range broker.Group("g").Members {
		if m.ClientID == clientID {
			var a, b, c, d, port int
			fmt.Sscanf(m.Host, "%d.%d.%d.%d:%d", &a, &b, &c, &d, &port)
			return fmt.Sprintf("%d.%d.%d.%d", a, b, c, d)
		}
	}
	return ""
}

func TestComeBackAsTheSameStaticMember(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				rival := broker.Join("g", "events", append([]kgo.Opt{kgo.InstanceID("i")}, opts...)...)
				other := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				had := [][]int32{rival.Assigned(), other.Assigned()}
				rival.Leave()
				time.Sleep(20 * time.Second)
				rival.ComeBack()
				time.Sleep(20 * time.Second)
				broker.WaitStable("g", 2)
				if diff := cmp.Diff(had, [][]int32{rival.Assigned(), other.Assigned()}); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestBadRivalOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 4))
		rival := broker.Join("g", "events")
		dead := broker.Join("g", "events")
		dead.Die()
		modern := broker.Join("h", "events", kgo.ServerSideBalancer())
		own := broker.Join("g", "events", kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {}))
		for name, test := range map[string]struct {
			do   func()
			want []string
		}{
			"partition": {func() { rival.Take(1, 4) }, []string{`rival "rival-1" take partitions [1 4] of topic "events"`, "no partition 4, only 0 to 3"}},
			"dead":      {func() { dead.Take(1) }, []string{"left or died", "ComeBack"}},
			"KIP-848":   {func() { modern.Take(1) }, []string{"under KIP-848 the broker decides", "classic protocol"}},
			"alive":     {func() { rival.ComeBack() }, []string{"it is there", "Die or Leave"}},
			"own hook":  {func() { own.Hang() }, []string{"OnPartitionsRevoked of its own"}},
		} {
			err := panicOf(test.do)
			if err == nil {
				t.Errorf("%s: did not fail", name)
				continue
			}
			mustContain(t, err.Error(), append(test.want, "memkafka: ")...)
		}
		broker.Close()
		mustContain(t, panicOf(func() { dead.ComeBack() }).Error(), "the broker is closed")
		mustContain(t, panicOf(func() { rival.Take(1) }).Error(), "left or died")
	})
}

// A rival takes one partition, and the member under test keeps the others.
func ExampleRival_Take() {
	broker, err := memkafka.Open(memkafka.Topic("events", 4))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	quick := kgo.HeartbeatInterval(10 * time.Millisecond)
	member := broker.Join("ingest", "events", quick) // stands for what you test
	rival := broker.Join("ingest", "events", quick)
	broker.WaitStable("ingest", 2)

	rival.Take(3)
	broker.WaitStable("ingest", 2)
	fmt.Println(rival.Assigned(), member.Assigned())
	// Output: [3] [0 1 2]
}
