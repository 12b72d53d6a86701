package arroyo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A periodic commit waits for a join to end; then the run is stopped. The last
// commit goes around kgo, and the older one must not follow it.
func TestI2LastCommitAroundAJoinIsTheLast(t *testing.T) {
	for range 40 {
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic(topic, 6))
			slow := newConsumer(t, broker)
			defer slow.Close()
			go func() {
				for {
					ev, err := slow.Poll(context.Background())
					if err != nil {
						return
					}
					if r, ok := ev.(*arroyo.Revoked); ok && len(r.Epochs) == 1 {
						r.Hold() // the second rebalance only
					}
				}
			}()
			broker.WaitStable(group, 1)
			var l ledger
			m := startMember(t, broker, strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				l.add("m", m.Payload)
				return nil
			}), nil, arroyo.CommitInterval(time.Second))
			broker.WaitStable(group, 2)
			time.Sleep(5 * time.Second)
			_ = broker.Join(group, topic)
			time.Sleep(6 * time.Second) // m has given up its partition and waits in the join
			produce(broker, 60)
			time.Sleep(3 * time.Second)
			produce(broker, 60)
			time.Sleep(500 * time.Millisecond)
			highest := map[int32]int64{}
			broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				broker.Cluster().KeepControl()
				for _, rt := range kreq.(*kmsg.OffsetCommitRequest).Topics {
					for _, rp := range rt.Partitions {
						if rp.Offset < highest[rp.Partition] {
							t.Errorf("commit of %d for partition %d after %d", rp.Offset, rp.Partition, highest[rp.Partition])
						}
						highest[rp.Partition] = max(highest[rp.Partition], rp.Offset)
					}
				}
				return nil, nil, false
			})
			if err := m.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			done := map[int32]int64{}
			for _, s := range l.all() {
				done[s.partition] = max(done[s.partition], s.offset+1)
			}
			for p, o := range done {
				if got := broker.Committed(group, topic)[p]; got != o {
					t.Errorf("after a clean drain partition %d is committed at %d, but done up to %d", p, got, o)
				}
			}
		})
	}
}

// A member that was fenced by a commit comes back, also if its offsets cannot be fetched for a while.
func TestI10TakenBackAtLast(t *testing.T) {
	for _, p := range protocols[:2] {
		for _, d := range []time.Duration{10 * time.Second, 45 * time.Second, 100 * time.Second} {
			t.Run(p.name+d.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 10)
					var l ledger
					m := startMember(t, broker, l.by("m"), p.opts)
					broker.WaitCommitted(group, topic, 10)
					broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownMemberID})
					f := broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit, Count: -1})
					produce(broker, 10)
					time.Sleep(d)
					f.Remove()
					time.Sleep(3 * time.Minute)
					produce(broker, 10)
					time.Sleep(10 * time.Second)
					l.expectAll(t, broker, 1000)
					m.shutDown(t)
				})
			})
		}
	}
}

// Whatever answer to a commit fenced it, a partition is read again.
func TestI10NoPartitionIsFencedForEver(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.FencedMemberEpoch} {
		for _, p := range protocols {
			t.Run(code.Message+p.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 10)
					var l ledger
					m := startMember(t, broker, l.by("m"), p.opts)
					broker.WaitCommitted(group, topic, 10)
					broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code})
					produce(broker, 10)
					time.Sleep(2 * time.Minute)
					produce(broker, 10)
					time.Sleep(2 * time.Minute)
					if sum := broker.Committed(group, topic)[0] + broker.Committed(group, topic)[1]; sum != 30 {
						t.Errorf("committed %d", sum)
					}
					m.shutDown(t)
				})
			})
		}
	}
}

// Whatever the commit of a start is answered, the partition is read.
func TestStartCommitFails(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.UnknownServerError, kerr.InvalidCommitOffsetSize, kerr.RequestTimedOut} {
		for _, p := range protocols {
			t.Run(code.Message+p.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 10)
					var l ledger
					broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code})
					m := startMember(t, broker, l.by("m"), p.opts)
					time.Sleep(2 * time.Minute)
					produce(broker, 10)
					time.Sleep(2 * time.Minute)
					if sum := broker.Committed(group, topic)[0] + broker.Committed(group, topic)[1]; sum != 20 {
						t.Errorf("committed %d", sum)
					}
					m.shutDown(t)
				})
			})
		}
	}
}

// Brokers that go away in the middle of a start cost no spinning: in a bubble that would stop time.
func TestBrokersGoAwayDuringTheOffsetFetch(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				once := false
				var opts []kgo.Opt = p.opts
				broker.Cluster().ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
					broker.Cluster().KeepControl()
					if !once {
						once = true
						go broker.Down()
					}
					return nil, nil, false
				})
				c := newConsumer(t, broker, opts...)
				defer c.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for {
					if _, err := c.Poll(ctx); err != nil {
						return // a minute has passed
					}
				}
			})
		})
	}
}

// The time that others take to give partitions back is not charged to our own revoke.
func TestBudgetIsOurOwn(t *testing.T) {
	for _, proto := range protocols {
		t.Run(proto.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 8))
				a := newConsumer(t, broker, proto.opts...)
				defer a.Close()
				b := newConsumer(t, broker, proto.opts...)
				defer b.Close()
				loop := func(name string, c *arroyo.Consumer, hold time.Duration) {
					for {
						ev, err := c.Poll(context.Background())
						if err != nil {
							return
						}
						if r, ok := ev.(*arroyo.Revoked); ok {
							if left := time.Until(r.Deadline); left < 40*time.Second {
								t.Errorf("%s has %v to finish, want about 52 s: it is the others that took the time", name, left)
							}
							rel := r.Hold()
							time.AfterFunc(hold, rel)
						} else {
						}
					}
				}
				go loop("a", a, 40*time.Second)
				broker.WaitStable(group, 1)
				go loop("b", b, 0)
				time.Sleep(51 * time.Second)
				x := broker.Join(group, topic, proto.opts...)
				time.Sleep(20 * time.Second)
				y := broker.Join(group, topic, proto.opts...)
				time.Sleep(4 * time.Minute)
				_, _ = x, y
			})
		})
	}
}

// Close from two goroutines, at any moment of a rebalance or a drain.
func TestCloseAtAnyMoment(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		for i := range 40 {
			c := newConsumer(t, broker, opts...)
			res := make(chan error, 1)
			go func() {
				var rel func()
				for {
					ev, err := c.Poll(context.Background())
					if err != nil {
						res <- err
						_ = rel
						return
					}
					switch ev := ev.(type) {
					case *arroyo.Assigned:
						if i%3 == 0 {
							rel = ev.Hold()
						}
					case *arroyo.Revoked:
						if i%3 == 1 {
							rel = ev.Hold()
						}
					}
				}
			}()
			time.Sleep(time.Duration(i*7) * time.Millisecond)
			var r *memkafka.Rival
			if i%2 == 0 {
				r = broker.Join(group, topic, opts...)
				time.Sleep(time.Duration(i*97%5000) * time.Millisecond)
			}
			if i%5 == 1 {
				c.Drain(time.Second)
				time.Sleep(time.Duration(i*33%1000) * time.Millisecond)
			}
			began := time.Now()
			both := make(chan struct{})
			go func() { c.Close(); close(both) }()
			c.Close()
			<-both
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("%d: Close took %v", i, took)
			}
			<-res
			if r != nil {
				r.Leave()
			}
		}
	})
}

// An Assigned that nobody releases holds its partitions back until the deadline only.
func TestAssignedHeldForEver(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		produce(broker, 40)
		c := newConsumer(t, broker, opts...)
		expect[*arroyo.Assigned](t, c).Hold()
		began := time.Now()
		f := 0
		for f < 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			ev, err := c.Poll(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := ev.(*arroyo.Fetched); ok {
				f++
			}
		}
		if took := time.Since(began); took < 50*time.Second || took > 55*time.Second {
			t.Errorf("records came after %v, want them at the deadline, 52 s", took)
		}
		drainWithin(t, c, 3*time.Second) // no Close: Closed is the last event
	})
}

// A drain does not wait for an Assigned that is held.
func TestDrainWhileAssignedIsHeld(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		c := newConsumer(t, broker, opts...)
		expect[*arroyo.Assigned](t, c).Hold()
		drainWithin(t, c, 3*time.Second)
	})
}

// drainWithin drains and polls up to Closed.
func drainWithin(t *testing.T, c *arroyo.Consumer, most time.Duration) {
	t.Helper()
	began := time.Now()
	c.Drain(time.Second)
	poll(t, c, func(ev arroyo.Event) bool {
		_, ok := ev.(*arroyo.Closed)
		return ok
	})
	if took := time.Since(began); took > most {
		t.Errorf("the drain took %v, want at most %v", took, most)
	}
}

// I15 also where the start of a group is found out on the way back: it is
// committed before anything is read, and so are the partitions that there were.
func TestI15TakenBackAtTheStart(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration} {
		for _, p := range protocols {
			t.Run(code.Message+p.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					produce(broker, 10)
					start := func() *arroyo.Consumer {
						return openConsumer(t, broker, arroyo.ClientOptions(p.opts...), arroyo.Start(arroyo.StartLatest()))
					}
					broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: code})
					first := start()
					done := inBackground(t, first, func(ev arroyo.Event) {
						if f, ok := ev.(*arroyo.Fetched); ok {
							t.Errorf("the first member, which was to skip all, read %d records", len(f.Records))
						}
					})
					time.Sleep(2 * time.Minute)
					if at := broker.Committed(group, topic); at[0] != 5 || at[1] != 5 {
						t.Errorf("committed: %v, want where the group starts", at)
					}
					first.Close()
					<-done
					produce(broker, 20) // nobody is there
					broker.AddPartitions(topic, 3)
					produceTo(broker, 2, 5)
					second := start()
					if got := read(t, second, 25); len(got[0]) != 10 || len(got[1]) != 10 || len(got[2]) != 5 {
						t.Errorf("the second member read %v, want all that came after the first", got)
					}
				})
			})
		}
	}
}

// How many partitions there were when the group began is known also after its
// epochs were replaced: one that is added later starts at its beginning.
func TestI15PartitionAddedAfterASeek(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		latest := arroyo.Start(arroyo.StartLatest())
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...), latest)
		old := expect[*arroyo.Assigned](t, c).Epochs
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ev, err := c.Poll(ctx); err == nil {
			t.Fatalf("got %T %+v, want nothing while it starts at the end", ev, ev)
		}
		if err := c.Seek(map[arroyo.Epoch]int64{old[0]: 0, old[1]: 0}); err != nil {
			t.Fatal(err)
		}
		expect[*arroyo.Lost](t, c)
		es := expect[*arroyo.Assigned](t, c).Epochs
		read(t, c, 10)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{es[0]: 5, es[1]: 5}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		broker.AddPartitions(topic, 3)
		produceTo(broker, 2, 5)
		second := openConsumer(t, broker, arroyo.ClientOptions(opts...), latest)
		if got := read(t, second, 5); len(got[2]) != 5 {
			t.Errorf("read %v, want all of the new partition", got)
		}
	})
}

// Nor is it forgotten by a member that had to ask for the group's offsets itself.
func TestI15PartitionAddedAfterARepair(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		start := func() *arroyo.Consumer {
			return openConsumer(t, broker, arroyo.ClientOptions(opts...), arroyo.Start(arroyo.StartLatest()))
		}
		first := start()
		expect[*arroyo.Assigned](t, first)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ev, err := first.Poll(ctx); err == nil {
			t.Fatalf("got %T %+v, want nothing", ev, ev)
		}
		first.Close()
		produce(broker, 10)
		broker.Cluster().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: 1,
		})
		second := start()
		es := expect[*arroyo.Assigned](t, second).Epochs
		for n := 0; n < 10; {
			if f, ok := next(t, second).(*arroyo.Fetched); ok { // and a Failed
				n += len(f.Records)
			}
		}
		if err := second.Commit(t.Context(), map[arroyo.Epoch]int64{es[0]: 5, es[1]: 5}); err != nil {
			t.Fatal(err)
		}
		second.Close()
		broker.AddPartitions(topic, 3)
		produceTo(broker, 2, 5)
		if got := read(t, start(), 5); len(got[2]) != 5 {
			t.Errorf("read %v, want all of the new partition", got)
		}
	})
}

// A member of which the answer to its join is the first to say that it was removed:
// kgo goes on as if nothing was, under a new member ID. What it had is lost, not
// revoked, and what it gets again goes on from what is committed.
func TestRemovedBeforeAJoin(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"dynamic": nil,
		"static":  {kgo.InstanceID("i")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 10)
				c := openConsumer(t, broker, arroyo.ClientOptions(append(opts, kgo.ClientID("me"))...))
				defer c.Close()
				old := expect[*arroyo.Assigned](t, c).Epochs
				read(t, c, 10)
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 2, old[1]: 3}); err != nil {
					t.Fatal(err)
				}
				removed := broker.Fail(kmsg.JoinGroup, kerr.UnknownMemberID, memkafka.OfGroup(group), memkafka.Times(1))
				broker.ForceRebalance(group)
				id, _ := c.Client().GroupMetadata()
				go func() {
					removed.Wait(1)
					if name == "dynamic" { // a new member with the instance ID takes the old one's place
						broker.Kick(group, id)
					}
				}()
				lost := expect[*arroyo.Lost](t, c)
				if diff := cmp.Diff(old, lost.Epochs); diff != "" || !errors.Is(lost.Reason, arroyo.ErrSessionEnded) {
					t.Errorf("lost because of %v (-want +got):\n%s", lost.Reason, diff)
				}
				back := expect[*arroyo.Assigned](t, c)
				if diff := cmp.Diff([]int32{0, 1}, numbers(back.Epochs)); diff != "" {
					t.Errorf("assigned (-want +got):\n%s", diff)
				}
				got := read(t, c, 5)
				if got[0][0] != 2 || got[1][0] != 3 {
					t.Errorf("read on from %d and %d, want the committed 2 and 3", got[0][0], got[1][0])
				}
			})
		})
	}
}
