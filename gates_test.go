package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// inEveryFollowingMode runs a test in a bubble with both sources, with shared and
// with partitioned processors.
func inEveryFollowingMode(t *testing.T, test func(t *testing.T, source string, start followingStarter)) {
	for source := range sources {
		t.Run(source+", shared", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, source, func(broker *memkafka.Broker, pipeline pipelineFunc, popts ...arroyo.ProcessorOption) *member {
					t.Helper()
					p, err := arroyo.NewProcessor(followingConsumer(t, broker, sources[source], nil, store), pipeline(), append(popts, quiet)...)
					if err != nil {
						t.Fatal(err)
					}
					return &member{p, memkafka.Start(t, p.Run)}
				})
			})
		})
		t.Run(source+", partitioned", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, source, func(broker *memkafka.Broker, pipeline pipelineFunc, popts ...arroyo.ProcessorOption) *member {
					t.Helper()
					p, err := arroyo.NewPartitionedProcessor(followingConsumer(t, broker, sources[source], nil, store),
						func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) { return pipeline(), nil }, append(popts, quiet)...)
					if err != nil {
						t.Fatal(err)
					}
					return &member{p, memkafka.Start(t, p.Run)}
				})
			})
		})
	}
}

type followingStarter func(broker *memkafka.Broker, pipeline pipelineFunc, popts ...arroyo.ProcessorOption) *member

// soon is within what a commit takes to be known: the commit log is read at
// once, the groups' offsets are asked for.
func soon(source string) time.Duration {
	if source == "offsets" {
		return 100*time.Millisecond + promptly
	}
	return promptly
}

// expectSeen checks how many records of each partition were delivered.
func (l *ledger) expectSeen(t *testing.T, want map[int32]int) {
	t.Helper()
	got := make(map[int32]int)
	for _, s := range l.all() {
		got[s.partition]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// Lag is that to the log's end, GateLag that to the gate: with nothing let
// through, with a part, with more parked than may be, and while user code is slow.
func TestLagOfAGatedPartition(t *testing.T) {
	inEveryFollowingMode(t, func(t *testing.T, _ string, start followingStarter) {
		broker := commitBroker(t, 1)
		stuck := make(chan struct{})
		m := start(broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				if m.Payload.Offset == 20 {
					<-stuck
				}
				return nil
			})
		})
		expect := func(watermark, gate, gateLag, lag int64, group string) {
			t.Helper()
			p := m.Status().Partitions[0]
			if p.Watermark != watermark || p.Gate != gate || p.GateLag != gateLag || p.Lag != lag || p.GateGroup != group {
				t.Errorf("watermark %d, gate %d, gate lag %d, lag %d, waits for %q; want %d, %d, %d, %d, %q",
					p.Watermark, p.Gate, p.GateLag, p.Lag, p.GateGroup, watermark, gate, gateLag, lag, group)
			}
		}
		broker.WaitStable(behind, 1)
		produce(broker, 100)
		time.Sleep(time.Second)
		expect(0, 0, 0, 100, store)
		commitAs(t, broker, store, 0, 10)
		time.Sleep(time.Second)
		expect(10, 10, 0, 90, store)
		produce(broker, 100)
		time.Sleep(time.Second)
		expect(10, 10, 0, 190, store)
		commitAs(t, broker, store, 0, 50)
		time.Sleep(time.Second)
		expect(20, 50, 30, 180, store)
		close(stuck)
		time.Sleep(time.Second)
		expect(50, 50, 0, 150, store)
		for range 30 { // more than is fetched of a partition that waits
			produce(broker, 1000)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		expect(50, 50, 0, 30_150, store)
		commitAs(t, broker, store, 0, 30_200)
		time.Sleep(time.Second)
		expect(30_200, 30_200, 0, 0, "")
		m.shutDown(t)
	})
}

// The lag that the consumer tells of counts what is parked.
func TestLagOfAConsumerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := commitBroker(t, 1)
		produce(broker, 100)
		commitAs(t, broker, store, 0, 10)
		c := followingConsumer(t, broker, sources["commit log"], nil, store)
		defer c.Close()
		e := expect[*arroyo.Assigned](t, c).Epochs[0]
		expect[*arroyo.Fetched](t, c)
		produce(broker, 50)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ev, err := c.Poll(ctx); err == nil {
			t.Errorf("got %T %+v", ev, ev)
		}
		if diff := cmp.Diff(map[arroyo.Epoch]int64{e: 140}, c.Lag()); diff != "" {
			t.Errorf("Lag (-want +got):\n%s", diff)
		}
	})
}

// A partition that does not wait is not paused, however much is fetched of it at
// once: after a pause it would wait for the broker's fetch in flight.
func TestPartitionThatDoesNotWaitIsNotPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := commitBroker(t, 2)
		for range 60 {
			produce(broker, 1000)
		}
		for p := range int32(2) {
			commitAs(t, broker, store, p, 30_000)
		}
		c := followingConsumer(t, broker, sources["commit log"], nil, store)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		for n := 0; n < 60_000; {
			n += len(expect[*arroyo.Fetched](t, c).Records)
			if paused := c.Client().PauseFetchPartitions(nil); len(paused) > 0 {
				t.Fatalf("after %d records %v are paused", n, paused)
			}
		}
	})
}

// The last entry of each group and partition counts, in a log that was compacted
// as in one that was not; also if the group was set back before.
func TestI14CompactedCommitLog(t *testing.T) {
	for _, compact := range []bool{false, true} {
		t.Run(fmt.Sprint(compact), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := commitBroker(t, 2)
				produce(broker, 200)
				for at := range int64(50) {
					commitAs(t, broker, store, 0, at)
					commitAs(t, broker, store, 1, 2*at)
					commitAs(t, broker, "audit", 0, 60)
					commitAs(t, broker, "somebody", 1, at)
				}
				commitAs(t, broker, "audit", 1, 100)
				commitAs(t, broker, store, 1, 30) // set back
				if compact {
					before := len(broker.Records(commits))
					broker.Compact(commits)
					if n := len(broker.Records(commits)); n > before/4 {
						t.Fatalf("%d of %d entries are left: nothing was compacted", n, before)
					}
				}
				var ledger ledger
				m := startFollowing(t, broker, sources["commit log"], ledger.pipeline("m"), nil, store, "audit")
				broker.WaitStable(behind, 1)
				time.Sleep(time.Second)
				ledger.expectSeen(t, map[int32]int{0: 49, 1: 30})
				commitAs(t, broker, store, 0, 100)
				commitAs(t, broker, store, 1, 100)
				time.Sleep(promptly)
				ledger.expectSeen(t, map[int32]int{0: 60, 1: 100})
				broker.Compact(commits) // while it is followed
				commitAs(t, broker, "audit", 0, 100)
				time.Sleep(promptly)
				ledger.expectSeen(t, map[int32]int{0: 100, 1: 100})
				m.shutDown(t)
			})
		})
	}
}

// When the commit log got more partitions, the newest entry is that which was
// written last, and not that which was read last.
func TestI14CommitLogGetsMorePartitions(t *testing.T) {
	for _, last := range []int32{0, 1} { // the partition that is read last
		t.Run(fmt.Sprint(last), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1), memkafka.Topic(commits, 1), memkafka.Brokers(2))
				produce(broker, 100)
				entry := func(number int32, offset int64) {
					r := arroyo.CommitLogEntry{Group: store, Partition: arroyo.Partition{Topic: topic}, Offset: offset}.Record(commits)
					r.Partition = number
					broker.ProduceRecords(r)
					time.Sleep(time.Second)
				}
				entry(0, 60)
				broker.AddPartitions(commits, 2)
				entry(1, 30)
				for p := range int32(2) {
					broker.MoveLeader(commits, p, p)
				}
				slow := broker.Delay(kmsg.Fetch, 5*time.Second, memkafka.OnTopic(commits), memkafka.OnPartitions(last))
				var ledger ledger
				m := startFollowing(t, broker, sources["commit log"], ledger.pipeline("m"), nil, store)
				slow.Wait(1)
				time.Sleep(20 * time.Second)
				ledger.expectSeen(t, map[int32]int{0: 30})
				slow.Heal()
				entry(1, 70)
				time.Sleep(20 * time.Second)
				ledger.expectSeen(t, map[int32]int{0: 70})
				m.shutDown(t)
			})
		})
	}
}

// Each partition of a topic is followed, whatever the number of partitions of
// the commit log.
func TestI14MorePartitionsThanTheCommitLog(t *testing.T) {
	inEveryFollowingMode(t, func(t *testing.T, source string, start followingStarter) {
		const partitions = 24
		broker := commitBroker(t, partitions)
		produce(broker, 100*partitions)
		var ledger ledger
		m := start(broker, ledger.pipeline("m"))
		broker.WaitStable(behind, 1)
		time.Sleep(time.Second)
		want := make(map[int32]int)
		for p := range int32(partitions) {
			commitAs(t, broker, store, p, int64(p))
			time.Sleep(soon(source))
			if p > 0 {
				want[p] = int(p)
			}
			ledger.expectSeen(t, want)
		}
		m.shutDown(t)
	})
}

// A partition to which nothing is written any more holds up no other, and who
// comes later is given all of it that was committed long ago.
func TestI14IdlePartition(t *testing.T) {
	inEveryFollowingMode(t, func(t *testing.T, source string, start followingStarter) {
		broker := commitBroker(t, 3)
		produce(broker, 300)
		commitAs(t, broker, store, 0, 100)
		commitAs(t, broker, store, 1, 50) // and partition 2 not at all
		time.Sleep(100 * time.Hour)
		var ledger ledger
		m := start(broker, ledger.pipeline("m"))
		broker.WaitStable(behind, 1)
		time.Sleep(time.Second)
		ledger.expectSeen(t, map[int32]int{0: 100, 1: 50})
		for i := range 50 {
			commitAs(t, broker, store, 2, int64(i+1))
			time.Sleep(soon(source))
			ledger.expectSeen(t, map[int32]int{0: 100, 1: 50, 2: i + 1})
		}
		m.shutDown(t)
	})
}

// What its last owner committed but did not write to the commit log, because it
// died or could not, comes to be in there all the same, soon and without news.
func TestCommitLogIsComplete(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := commitBroker(t, 1)
		refused := broker.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(commits))
		var ledger ledger
		first := start(t, broker, ledger.pipeline("first"), opts, arroyo.CommitLog(commits), arroyo.CommitInterval(time.Second))
		broker.WaitStable(group, 1)
		produce(broker, 10)
		first.waitDone(t, 10)
		first.shutDown(t)
		refused.Heal()
		expect := func(want int64) {
			t.Helper()
			time.Sleep(5 * time.Second)
			records := broker.Records(commits)
			if len(records) == 0 {
				t.Fatalf("the log is empty, want %d in it", want)
			}
			if e, err := arroyo.ReadCommitLogEntry(records[len(records)-1]); err != nil || e.Offset != want {
				t.Errorf("the last entry is %+v, %v; want %d", e, err, want)
			}
		}
		if len(broker.Records(commits)) > 0 {
			t.Fatal("something was written to the log")
		}
		second := start(t, broker, ledger.pipeline("second"), opts, arroyo.CommitLog(commits), arroyo.CommitInterval(time.Second))
		expect(10)
		refused = broker.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(commits))
		produce(broker, 5)
		refused.Wait(1)
		refused.Heal()
		expect(15)
		n := len(broker.Records(commits))
		time.Sleep(10 * time.Minute)
		if more := len(broker.Records(commits)) - n; more != 0 {
			t.Errorf("%d entries without news", more)
		}
		second.shutDown(t)
	})
}

// Seek goes back within what was committed, and not past it.
func TestI14Seek(t *testing.T) {
	for source := range sources {
		t.Run(source, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := commitBroker(t, 1)
				produce(broker, 100)
				commitAs(t, broker, store, 0, 30)
				c := followingConsumer(t, broker, sources[source], nil, store)
				defer c.Close()
				e := expect[*arroyo.Assigned](t, c).Epochs[0]
				readFrom := func(from, next int64) {
					t.Helper()
					f := expect[*arroyo.Fetched](t, c)
					if f.Epoch != e || f.Records[0].Offset != from || f.Next != next {
						t.Errorf("records %d to %d of %s, want %d to %d of %s", f.Records[0].Offset, f.Next, f.Epoch, from, next, e)
					}
				}
				nothing := func() {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if ev, err := c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("got %T %+v, %v", ev, ev, err)
					}
				}
				seek := func(to int64) {
					t.Helper()
					if err := c.Seek(map[arroyo.Epoch]int64{e: to}); err != nil {
						t.Fatal(err)
					}
					expect[*arroyo.Lost](t, c)
					e = expect[*arroyo.Assigned](t, c).Epochs[0]
				}
				readFrom(0, 30)
				nothing() // 70 are parked
				seek(10)
				readFrom(10, 30)
				nothing()
				seek(60)
				nothing()
				commitAs(t, broker, store, 0, 50)
				nothing()
				commitAs(t, broker, store, 0, 70)
				readFrom(60, 70)
				seek(0)
				readFrom(0, 70)
				nothing()
			})
		})
	}
}

// I4: what is parked of several fetches stays in order, whenever the gate moves and
// whenever the partition is paused.
func TestI4ParkedFetchesStayInOrder(t *testing.T) {
	moves := map[string]func(t *testing.T, broker *memkafka.Broker, c *arroyo.Consumer, limit int64){
		"the gate moves between two polls": func(t *testing.T, broker *memkafka.Broker, _ *arroyo.Consumer, limit int64) {
			commitAs(t, broker, store, 0, limit)
		},
		"the gate moves while it is paused": func(t *testing.T, broker *memkafka.Broker, c *arroyo.Consumer, limit int64) {
			zero := arroyo.Partition{Topic: topic}
			if err := c.Pause(zero); err != nil {
				t.Fatal(err)
			}
			commitAs(t, broker, store, 0, limit)
			time.Sleep(time.Second)
			if err := c.Resume(zero); err != nil {
				t.Fatal(err)
			}
		},
		"the gate moves twice": func(t *testing.T, broker *memkafka.Broker, _ *arroyo.Consumer, limit int64) {
			commitAs(t, broker, store, 0, limit-1)
			time.Sleep(time.Second)
			commitAs(t, broker, store, 0, limit)
		},
	}
	for source := range sources {
		for name, move := range moves {
			t.Run(source+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := commitBroker(t, 1)
					c := followingConsumer(t, broker, sources[source], nil, store)
					defer c.Close()
					expect[*arroyo.Assigned](t, c)
					park := func() { // another fetch of 10
						t.Helper()
						produce(broker, 10)
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if ev, err := c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
							t.Fatalf("got %T %+v, %v", ev, ev, err)
						}
					}
					for range 3 {
						park()
					}
					var at int64
					for _, limit := range []int64{3, 6, 13, 14, 25, 30} {
						move(t, broker, c, limit)
						time.Sleep(time.Second) // nobody polls
						for at < limit {
							f := expect[*arroyo.Fetched](t, c)
							if f.Records[0].Offset != at || f.Next > limit {
								t.Fatalf("records %d to %d came behind those below %d; the gate is at %d", f.Records[0].Offset, f.Next, at, limit)
							}
							at = f.Next
						}
					}
				})
			})
		}
	}
}

// A partition that the user paused waits for both: for Resume, and for the
// groups. What is parked comes at once after the later of the two.
func TestI14UserPause(t *testing.T) {
	for source := range sources {
		t.Run(source, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := commitBroker(t, 2)
				produce(broker, 200)
				commitAs(t, broker, store, 1, 10)
				c := followingConsumer(t, broker, sources[source], []kgo.Opt{kgo.FetchMaxWait(time.Minute)}, store)
				defer c.Close()
				expect[*arroyo.Assigned](t, c)
				poll1 := func(d time.Duration) arroyo.Event {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), d)
					defer cancel()
					ev, err := c.Poll(ctx)
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Fatal(err)
					}
					return ev
				}
				read := func(ev arroyo.Event, partition int32, from, next int64) {
					t.Helper()
					f, ok := ev.(*arroyo.Fetched)
					if !ok || f.Epoch.Number != partition || f.Records[0].Offset != from || f.Next != next {
						t.Fatalf("got %T %+v, want records %d to %d of partition %d", ev, ev, from, next, partition)
					}
				}
				nothing := func() {
					t.Helper()
					if ev := poll1(30 * time.Second); ev != nil {
						t.Fatalf("got %T %+v, want nothing", ev, ev)
					}
				}
				read(poll1(time.Minute), 1, 0, 10)
				nothing()
				zero := arroyo.Partition{Topic: topic}
				if err := c.Pause(zero); err != nil {
					t.Fatal(err)
				}
				commitAs(t, broker, store, 0, 40)
				commitAs(t, broker, store, 1, 20) // the other one flows
				read(poll1(soon(source)), 1, 10, 20)
				nothing()
				if err := c.Resume(zero); err != nil {
					t.Fatal(err)
				}
				read(poll1(promptly), 0, 0, 40)
				if err := c.Pause(zero); err != nil {
					t.Fatal(err)
				}
				if err := c.Resume(zero); err != nil {
					t.Fatal(err)
				}
				nothing() // the groups' turn
				commitAs(t, broker, store, 0, 60)
				read(poll1(soon(source)), 0, 40, 60)
			})
		})
	}
}

// Who is full takes no more than the bound when the gate moves, and all of it
// in the end.
func TestI14Backpressure(t *testing.T) {
	inEveryFollowingMode(t, func(t *testing.T, source string, start followingStarter) {
		broker := commitBroker(t, 2)
		produce(broker, 2000)
		var ledger ledger
		slow := make(chan struct{})
		m := start(broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				<-slow
				ledger.add("m", m.Payload)
				return nil
			})
		}, arroyo.MaxInFlight(100))
		broker.WaitStable(behind, 1)
		for p := range int32(2) {
			commitAs(t, broker, store, p, 300)
		}
		time.Sleep(time.Minute)
		if n := m.Status().InFlight; n > 2*300 { // a slice more than the bound
			t.Errorf("%d records are in flight", n)
		}
		commitAs(t, broker, store, 0, 900)
		commitAs(t, broker, store, 1, 800)
		time.Sleep(time.Minute)
		if n := m.Status().InFlight; n > 2*300 {
			t.Errorf("%d records are in flight after the gate has moved", n)
		}
		close(slow)
		time.Sleep(time.Minute)
		ledger.expectSeen(t, map[int32]int{0: 900, 1: 800})
		commitAs(t, broker, store, 1, 1000)
		time.Sleep(soon(source))
		ledger.expectSeen(t, map[int32]int{0: 900, 1: 1000})
		m.shutDown(t)
		ledger.expectOrder(t)
	})
}

// A shutdown leaves to the next member what is parked, at once.
func TestI14Shutdown(t *testing.T) {
	inEveryFollowingMode(t, func(t *testing.T, source string, start followingStarter) {
		broker := commitBroker(t, 2)
		produce(broker, 200)
		commitAs(t, broker, store, 0, 30)
		var ledger ledger
		m := start(broker, ledger.pipeline("first"))
		broker.WaitStable(behind, 1)
		time.Sleep(time.Second)
		began := time.Now()
		m.shutDown(t)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the shutdown took %v", took)
		}
		if at := broker.Committed(behind, topic); at[0] != 30 || at[1] != 0 {
			t.Errorf("committed: %v, want 30 and 0", at)
		}
		m = start(broker, ledger.pipeline("second"))
		broker.WaitStable(behind, 1)
		time.Sleep(time.Second)
		ledger.expectSeen(t, map[int32]int{0: 30})
		commitAs(t, broker, store, 0, 100)
		commitAs(t, broker, store, 1, 100)
		time.Sleep(soon(source))
		ledger.expectSeen(t, map[int32]int{0: 100, 1: 100})
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
	})
}

// Whenever members of either group come and go, nothing is delivered early, and
// nothing twice.
func TestI14RebalancesAtAnyMoment(t *testing.T) {
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			for moment := time.Duration(0); moment < time.Second; moment += 91 * time.Millisecond {
				t.Run(moment.String(), func(t *testing.T) {
					underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
						broker := commitBroker(t, 4)
						produce(broker, 400)
						var (
							ledger ledger
							at     atomic.Int64
						)
						pipeline := func() arroyo.Strategy[*kgo.Record] {
							return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
								if gate := at.Load(); m.Payload.Offset >= gate {
									t.Errorf("offset %d of partition %d was delivered when %d was committed", m.Payload.Offset, m.Payload.Partition, gate)
								}
								ledger.add("m", m.Payload)
								return nil
							})
						}
						one := startFollowing(t, broker, source, pipeline, opts, store)
						broker.WaitStable(behind, 1)
						done := make(chan struct{})
						go func() {
							defer close(done)
							for i := range int64(20) {
								at.Store(5 * (i + 1))
								for p := range int32(4) {
									commitAs(t, broker, store, p, at.Load())
								}
								time.Sleep(100 * time.Millisecond)
							}
						}()
						time.Sleep(moment)
						two := startFollowing(t, broker, source, pipeline, opts, store)
						time.Sleep(moment)
						one.shutDown(t)
						<-done
						time.Sleep(5 * time.Second)
						ledger.expectSeen(t, map[int32]int{0: 100, 1: 100, 2: 100, 3: 100})
						two.shutDown(t)
						ledger.expectAll(t, broker, 0)
					})
				})
			}
		})
	}
}

// A partition that waits is not fetched again and again: each request waits at
// the broker as long as it may, and beyond the bound there is none.
func TestI14WaitingDoesNotFetch(t *testing.T) {
	for name, records := range map[string]int{"parked": 1000, "paused": 30_000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := commitBroker(t, 1)
				for range records / 1000 {
					produce(broker, 1000)
				}
				var (
					ledger  ledger
					fetches atomic.Int64
				)
				var read recordCounter
				m := startFollowing(t, broker, sources["offsets"], ledger.pipeline("m"),
					[]kgo.Opt{kgo.WithHooks(fetchCounter{&fetches}, &read), kgo.FetchMaxWait(time.Minute), kgo.FetchMaxPartitionBytes(20_000)}, store)
				broker.WaitStable(behind, 1)
				time.Sleep(time.Minute)
				before := fetches.Load()
				for i := range int64(60) { // also while it is let through bit by bit
					commitAs(t, broker, store, 0, i+1)
					time.Sleep(10 * time.Second)
				}
				if n := fetches.Load() - before; n > 12 {
					t.Errorf("%d fetches in ten minutes", n)
				}
				ledger.expectSeen(t, map[int32]int{0: 60})
				if n := read.n.Load(); n < int64(min(records, 10_000)) || n > 15_000 {
					t.Errorf("%d records were fetched; 10,000 and a fetch are what may be parked", n)
				}
				m.shutDown(t)
			})
		})
	}
}

// recordCounter counts the records that come in.
type recordCounter struct{ n atomic.Int64 }

func (c *recordCounter) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	c.n.Add(int64(m.NumRecords))
}

// A group whose offsets expired has committed nothing.
func TestI14OffsetsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := commitBroker(t, 1)
		produce(broker, 100)
		commitAs(t, broker, store, 0, 80)
		commitAs(t, broker, "audit", 0, 30)
		var ledger ledger
		m := startFollowing(t, broker, sources["offsets"], ledger.pipeline("m"), nil, store, "audit")
		broker.WaitStable(behind, 1)
		time.Sleep(time.Second)
		ledger.expectSeen(t, map[int32]int{0: 30})
		broker.ExpireOffsets(store)
		time.Sleep(time.Second)
		commitAs(t, broker, "audit", 0, 60)
		time.Sleep(time.Second)
		ledger.expectSeen(t, map[int32]int{0: 30})
		commitAs(t, broker, store, 0, 70)
		time.Sleep(time.Second)
		ledger.expectSeen(t, map[int32]int{0: 60})
		m.shutDown(t)
	})
}
