package memkafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

var protocols = map[string][]kgo.Opt{
	"cooperative": nil,
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"KIP-848":     {kgo.ServerSideBalancer()},
}

// mustOwnAll checks that each partition is one rival's, and that none has much more than another.
func mustOwnAll(t *testing.T, partitions int, rivals ...*memkafka.Rival) {
	t.Helper()
	var all []int32
	for i, r := range rivals {
		mine := r.Assigned()
		if !slices.IsSorted(mine) || len(mine) < partitions/len(rivals) || len(mine) > (partitions+len(rivals)-1)/len(rivals) {
			t.Errorf("rival %d of %d has %v of %d partitions", i, len(rivals), mine, partitions)
		}
		all = append(all, mine...)
	}
	slices.Sort(all)
	for p := range int32(partitions) {
		if len(all) != partitions || all[p] != p {
			t.Fatalf("the rivals have %v", all)
		}
	}
}

func TestOneOfTwoDies(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				a := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 1)
				mustOwnAll(t, 4, a)
				b := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				mustOwnAll(t, 4, a, b)

				begin := time.Now()
				a.Die()
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("dying took %v", took)
				}
				if n := broker.Members("g"); n != 2 {
					t.Errorf("%d members: the broker has noticed the death at once", n)
				}
				mustOwnAll(t, 4, a, b)
				broker.WaitStable("g", 1)
				if took := time.Since(begin); took < 40*time.Second || took > 55*time.Second {
					t.Errorf("took over after %v, with a session timeout of 45 s", took)
				}
				if got := a.Assigned(); len(got) != 0 {
					t.Errorf("the dead has %v", got)
				}
				mustOwnAll(t, 4, b)
			})
		})
	}
}

func TestOneOfTwoLeaves(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				a, b := broker.Join("g", "events", opts...), broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				begin := time.Now()
				a.Leave()
				if n := broker.Members("g"); n != 1 {
					t.Errorf("%d members after one of two left", n)
				}
				a.Leave()
				a.Die()
				broker.WaitStable("g", 1)
				if took := time.Since(begin); took > 6*time.Second {
					t.Errorf("took over after %v", took)
				}
				mustOwnAll(t, 4, b)
			})
		})
	}
}

func TestRivalsInRealTime(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 2))
	broker.Produce("events", "a", "b", "c")
	a := broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()), kgo.HeartbeatInterval(10*time.Millisecond))
	broker.WaitStable("g", 1)
	b := broker.Join("g", "events", kgo.Balancers(kgo.RangeBalancer()), kgo.HeartbeatInterval(10*time.Millisecond))
	broker.WaitStable("g", 2)
	mustOwnAll(t, 2, a, b)
	b.Leave()
	broker.WaitStable("g", 1)
	mustOwnAll(t, 2, a)
}

// A rival takes partitions from a client under test, and gives them back.
func TestRivalOfAClient(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				client := newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				}, opts...)...)
				stop := memkafka.Start(t, consume(client))
				broker.Produce("events", "a", "b", "c", "d")
				broker.WaitCommitted("g", "events", 4)

				rival := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				theirs := rival.Assigned()
				if len(theirs) != 2 {
					t.Errorf("the rival has %v", theirs)
				}
				broker.Produce("events", "e", "f", "g", "h")
				broker.WaitCommitted("g", "events", 6)
				time.Sleep(10 * time.Second)
				var want []place
				for _, r := range broker.Records("events") {
					if r.Offset == 1 && slices.Contains(theirs, r.Partition) {
						want = append(want, place{r.Partition, r.Offset, string(r.Value)})
					}
				}
				got := places(rival.Consumed())
				slices.SortFunc(got, func(a, b place) int { return int(a.Partition - b.Partition) })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the rival consumed: %s", diff)
				}
				if n := broker.Committed("g", "events")[theirs[0]]; n != 1 {
					t.Errorf("somebody committed %d for a partition of the rival, which never commits", n)
				}

				rival.Die()
				broker.WaitCommitted("g", "events", 8)
				broker.WaitStable("g", 1)
				if err := stop(); err != context.Canceled {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever tests a revoke holds it on the goroutine that calls Join and Leave.
func TestLeaveDuringAHeldRebalance(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				held, release := make(chan struct{}), make(chan struct{})
				newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
					kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
						if len(lost) > 0 {
							select {
							case held <- struct{}{}:
								<-release
							case <-release:
							}
						}
					}),
				}, opts...)...)
				broker.WaitStable("g", 1)
				rival := broker.Join("g", "events", opts...)
				<-held
				begin := time.Now()
				rival.Leave()
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("leaving took %v", took)
				}
				if n := broker.Members("g"); n != 1 {
					t.Errorf("%d members after the rival left", n)
				}
				close(release)
				broker.WaitStable("g", 1)
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("stable after %v", took)
				}
			})
		})
	}
}

func TestStaticRival(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				static := append([]kgo.Opt{kgo.InstanceID("i")}, opts...)
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				a := broker.Join("g", "events", static...)
				b := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				had, has := a.Assigned(), b.Assigned()

				// Gone and back: nobody else notices.
				a.Leave()
				time.Sleep(20 * time.Second)
				a = broker.Join("g", "events", static...)
				time.Sleep(20 * time.Second)
				broker.WaitStable("g", 2)
				if diff := cmp.Diff([][]int32{had, has}, [][]int32{a.Assigned(), b.Assigned()}); diff != "" {
					t.Errorf("after a restart: %s", diff)
				}

				begin := time.Now()
				a.Leave()
				broker.WaitStable("g", 1)
				if took := time.Since(begin); took < 40*time.Second || took > 55*time.Second {
					t.Errorf("its partitions were taken after %v", took)
				}
				mustOwnAll(t, 4, b)
			})
		})
	}
}

func TestJoinTakesOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4), memkafka.Topic("others", 2))
		rival := broker.Join("g", "events",
			kgo.ClientID("mine"), kgo.SessionTimeout(10*time.Second),
			kgo.ConsumerGroup("not this"), kgo.SeedBrokers("nor.this:9092"), kgo.ConsumeTopics("events", "others"),
		)
		broker.WaitStable("g", 1)
		members := broker.Cluster().GroupInfo("g").Members
		if len(members) != 1 || members[0].ClientID != "mine" {
			t.Errorf("members %+v", members)
		}
		if diff := cmp.Diff(map[string][]int32{"events": {0, 1, 2, 3}, "others": {0, 1}}, members[0].Assignment); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int32{0, 1, 2, 3}, rival.Assigned()); diff != "" {
			t.Error(diff)
		}
		begin := time.Now()
		rival.Die()
		broker.WaitStable("g", 0)
		if took := time.Since(begin); took > 15*time.Second {
			t.Errorf("session timeout of 10 s took %v", took)
		}
	})
}

// What the test leaves behind ends with it, also in the middle of things.
func TestRivalsEndWithTheBroker(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				for range 3 {
					broker.Join("g", "events", opts...)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				broker.Join("g", "events", append([]kgo.Opt{kgo.BlockRebalanceOnPoll()}, opts...)...)
				broker.WaitStable("g", 1)
				broker.Down()
				broker.Join("g", "events", opts...)
				time.Sleep(7 * time.Second)
			})
		})
	}
}

func TestNothingIsLeftOfARival(t *testing.T) {
	for name, opts := range protocols {
		for how, end := range map[string]func(*memkafka.Rival){"Die": (*memkafka.Rival).Die, "Leave": (*memkafka.Rival).Leave} {
			t.Run(name+" "+how, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				before := goleak.IgnoreCurrent() // nothing is connected so far: kfake has a new goroutine for each request
				rival := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 1)
				end(rival)
				goleak.VerifyNone(t, before)
			})
		}
	}
}

// The same test sees the same thing each time.
func TestManyRivals(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			var first string
			for i := range 5 {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 12))
					var log strings.Builder
					var rivals []*memkafka.Rival
					step := func(what string) {
						broker.WaitStable("g", len(rivals))
						fmt.Fprintln(&log, what)
						for _, r := range rivals {
							fmt.Fprintln(&log, " ", r.Assigned())
						}
					}
					for range 3 {
						rivals = append(rivals, broker.Join("g", "events", opts...))
						step("join")
					}
					rivals[0].Die()
					rivals = rivals[1:]
					step("die")
					rivals[0].Leave()
					rivals = rivals[1:]
					step("leave")
					mustOwnAll(t, 12, rivals...)
					// Who gets which partition depends on member IDs, which are random; how many does not.
					if i == 0 {
						first = counts(log.String())
					} else if diff := cmp.Diff(first, counts(log.String())); diff != "" {
						t.Error(diff)
					}
				})
			}
		})
	}
}

func counts(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		fmt.Fprintln(&b, len(strings.Fields(line)))
	}
	return b.String()
}
