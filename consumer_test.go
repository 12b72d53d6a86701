package arroyo_test

import (
	"context"
	"errors"
	"slices"
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
)

// poll polls until done says so, in which it may look at each event.
func poll(t *testing.T, c *arroyo.Consumer, done func(arroyo.Event) bool) {
	t.Helper()
	for !done(next(t, c)) {
	}
}

// inBackground polls on a goroutine until the consumer is closed.
func inBackground(t *testing.T, c *arroyo.Consumer, handle func(arroyo.Event)) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := c.Poll(context.Background())
			if err != nil {
				if !errors.Is(err, arroyo.ErrClosed) {
					t.Errorf("Poll: %v", err)
				}
				return
			}
			handle(ev)
		}
	}()
	return done
}

func TestEventsOfAnEpochComeInOrder(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 4)
		c := newConsumer(t, broker, opts...)
		defer c.Close()

		assigned := expect[*arroyo.Assigned](t, c)
		if diff := cmp.Diff([]int32{0, 1}, numbers(assigned.Epochs)); diff != "" {
			t.Fatalf("assigned (-want +got):\n%s", diff)
		}
		read := make(map[arroyo.Epoch][]int64)
		records := 0
		poll(t, c, func(ev arroyo.Event) bool {
			f := ev.(*arroyo.Fetched)
			for _, r := range f.Records {
				read[f.Epoch] = append(read[f.Epoch], r.Offset)
			}
			if f.End != 2 {
				t.Errorf("End of %s is %d, want 2", f.Epoch, f.End)
			}
			records += len(f.Records)
			return records == 4
		})
		for _, e := range assigned.Epochs {
			if diff := cmp.Diff([]int64{0, 1}, read[e]); diff != "" {
				t.Errorf("offsets of %s (-want +got):\n%s", e, diff)
			}
		}

		rival := broker.Join(group, topic, opts...)
		revoked := expect[*arroyo.Revoked](t, c)
		if len(revoked.Epochs) == 0 || !slices.Contains(assigned.Epochs, revoked.Epochs[0]) {
			t.Errorf("revoked %v of %v", revoked.Epochs, assigned.Epochs)
		}
		if len(rival.Assigned()) != 0 {
			t.Error("the rival has partitions before the Revoked was released")
		}
		// The next Poll releases. Eager gives back and takes anew; the
		// others keep what they have.
		done := inBackground(t, c, func(ev arroyo.Event) {
			if a, ok := ev.(*arroyo.Assigned); ok {
				for _, e := range a.Epochs {
					if slices.Contains(assigned.Epochs, e) {
						t.Errorf("epoch %s was assigned twice", e)
					}
				}
			}
		})
		broker.WaitStable(group, 2)
		if len(rival.Assigned()) != 1 {
			t.Errorf("the rival has %v, want one partition", rival.Assigned())
		}
		c.Close()
		<-done
	})
}

func TestHeldRevokeWaitsWhileOthersFlow(t *testing.T) {
	for _, p := range protocols {
		if p.name == "eager" {
			continue // an eager rebalance takes everything
		}
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				// The hold outlasts three sessions that nothing was heard in.
				c := newConsumer(t, broker, append(slices.Clone(p.opts), kgo.SessionTimeout(10*time.Second))...)
				defer c.Close()
				expect[*arroyo.Assigned](t, c)
				asked := make(chan arroyo.Event, 100)
				done := inBackground(t, c, func(ev arroyo.Event) {
					if r, ok := ev.(*arroyo.Revoked); ok {
						r.Hold()
					}
					asked <- ev
				})
				broker.WaitStable(group, 1)
				// A rebalance cancels the fetch of offsets, and what had
				// none yet would wait for the end of the hold.
				time.Sleep(time.Second)
				rival := broker.Join(group, topic, p.opts...)
				revoked, ok := (<-asked).(*arroyo.Revoked)
				if !ok || len(revoked.Epochs) != 1 {
					t.Fatalf("got %+v, want a Revoked of one partition", revoked)
				}
				kept := 1 - revoked.Epochs[0].Number

				for range 3 {
					time.Sleep(10 * time.Second)
					broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: kept, Value: []byte("x")})
					if f, ok := (<-asked).(*arroyo.Fetched); !ok || f.Epoch.Number != kept {
						t.Fatalf("got %+v, want a record of partition %d", f, kept)
					}
					if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{revoked.Epochs[0]: 0}); err != nil {
						t.Errorf("Commit while held: %v", err)
					}
				}
				if len(rival.Assigned()) != 0 {
					t.Error("the rival has a partition although its Revoked is held")
				}
				revoked.Hold()()
				broker.WaitStable(group, 2)
				var refused *arroyo.NotHeldError
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{revoked.Epochs[0]: 1}); !errors.As(err, &refused) || !errors.Is(err, arroyo.ErrFenced) {
					t.Errorf("Commit after the release: %v, want a NotHeldError", err)
				}
				c.Close()
				<-done
			})
		})
	}
}

func TestHoldIsBoundedByTheDeadline(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := newConsumer(t, broker, opts...)
		defer c.Close()
		first := expect[*arroyo.Assigned](t, c)
		events := make(chan *arroyo.Revoked, 10)
		done := inBackground(t, c, func(ev arroyo.Event) {
			if r, ok := ev.(*arroyo.Revoked); ok {
				r.Hold() // and never release
				events <- r
			}
		})
		broker.WaitStable(group, 1)
		rival := broker.Join(group, topic, opts...)
		revoked := <-events
		broker.WaitStable(group, 2)
		if now := time.Now(); now.Before(revoked.Deadline) {
			t.Errorf("the group went on %v before the deadline", revoked.Deadline.Sub(now))
		}
		if len(rival.Assigned()) != 1 {
			t.Errorf("the rival has %v, want one partition", rival.Assigned())
		}
		err := c.Commit(t.Context(), map[arroyo.Epoch]int64{first.Epochs[0]: 0, first.Epochs[1]: 0})
		if !errors.Is(err, arroyo.ErrFenced) {
			t.Errorf("Commit past the deadline: %v, want ErrFenced", err)
		}
		c.Close()
		<-done
	})
}

func TestPollHonoursItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := newConsumer(t, broker)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		for _, f := range []func(context.Context) (arroyo.Event, error){c.Poll, c.PollEvents} {
			ctx, cancel := context.WithTimeout(t.Context(), 7*time.Minute)
			began := time.Now()
			ev, err := f(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || ev != nil {
				t.Errorf("got %v, %v; want nothing and the context's error", ev, err)
			}
			if took := time.Since(began); took != 7*time.Minute {
				t.Errorf("it took %v, want 7m exactly", took)
			}
			cancel()
		}
	})
}

func TestRebalanceWakesPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := newConsumer(t, broker, kgo.Balancers(kgo.RangeBalancer()))
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		// A heartbeat that says that a rebalance is on reaches kgo's hook
		// at once; Poll has to return at the same instant of time.
		said := make(chan time.Time, 1)
		broker.Cluster().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.RebalanceInProgress,
			When: func(kmsg.Request) bool { said <- time.Now(); return true },
		})
		expect[*arroyo.Revoked](t, c)
		if delay := time.Since(<-said); delay != 0 {
			t.Errorf("Poll returned %v after the heartbeat, want at once", delay)
		}
	})
}

func TestPollEventsTakesNoRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		c := newConsumer(t, broker)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		expect[*arroyo.Fetched](t, c) // of one partition; the other's is fetched as well

		done := make(chan arroyo.Event)
		go func() {
			for {
				ev, err := c.PollEvents(context.Background())
				if err != nil {
					close(done)
					return
				}
				done <- ev
			}
		}()
		broker.Join(group, topic)
		revoked, ok := (<-done).(*arroyo.Revoked)
		if !ok {
			t.Fatal("PollEvents returned something else than the Revoked")
		}
		if len(revoked.Epochs) != 1 {
			t.Errorf("revoked %v, want one of two partitions", revoked.Epochs)
		}
		c.Close()
		for ev := range done {
			t.Errorf("PollEvents returned %T", ev)
		}
	})
}

func TestStartIsCommittedAtOnce(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		c := newConsumer(t, broker, opts...)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		done := inBackground(t, c, func(arroyo.Event) {})
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		want := map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}
		if diff := cmp.Diff(want, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed although nothing was read (-want +got):\n%s", diff)
		}
		c.Close()
		<-done
	})
}

func TestCommitIsTriedAgain(t *testing.T) {
	for _, again := range []*kerr.Error{
		kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
		kerr.RequestTimedOut, kerr.UnknownTopicOrPartition,
	} {
		t.Run(again.Message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				produce(broker, 5)
				c := newConsumer(t, broker)
				defer c.Close()
				epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
				expect[*arroyo.Fetched](t, c)
				fault := broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: again, Count: 3})
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 5}); err != nil {
					t.Errorf("Commit: %v", err)
				}
				if got := broker.Committed(group, topic)[0]; got != 5 {
					t.Errorf("committed %d, want 5", got)
				}
				if fault.Hits() == 0 {
					t.Error("the fault was never met")
				}
			})
		})
	}
}

func TestCommitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := newConsumer(t, broker)
		defer c.Close()
		epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
		done := inBackground(t, c, func(arroyo.Event) {})
		time.Sleep(time.Second)
		broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
		err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 1})
		var failed *arroyo.CommitError
		if !errors.As(err, &failed) || !errors.Is(err, kerr.GroupAuthorizationFailed) || failed.Unknown {
			t.Errorf("Commit: %v, want a CommitError for the missing authorisation", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		broker.Down()
		err = c.Commit(ctx, map[arroyo.Epoch]int64{epoch: 2})
		if !errors.As(err, &failed) || !failed.Unknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Commit to a broker that is down: %v, want an unknown outcome when the context ends", err)
		}
		c.Close()
		<-done
	})
}

// A commit that is answered UNKNOWN_MEMBER_ID fences everything; the member
// comes back as new epochs that begin at the committed offsets.
func TestCommitOfAMemberThatIsGone(t *testing.T) {
	for _, p := range protocols[:2] { // under KIP-848 only heartbeats tell
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 10)
				c := newConsumer(t, broker, p.opts...)
				defer c.Close()
				old := expect[*arroyo.Assigned](t, c).Epochs
				records := 0
				poll(t, c, func(ev arroyo.Event) bool {
					records += len(ev.(*arroyo.Fetched).Records)
					return records == 10
				})
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 2, old[1]: 3}); err != nil {
					t.Fatal(err)
				}
				broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownMemberID})
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 5}); !errors.Is(err, arroyo.ErrFenced) || !errors.Is(err, kerr.UnknownMemberID) {
					t.Fatalf("Commit: %v, want UNKNOWN_MEMBER_ID and ErrFenced", err)
				}
				// kgo rejoins as soon as it sees the answer, so an eager
				// member's Revoked may come before it becomes a Lost.
				poll(t, c, func(ev arroyo.Event) bool {
					switch ev := ev.(type) {
					case *arroyo.Lost:
						if diff := cmp.Diff(old, ev.Epochs); diff != "" {
							t.Errorf("lost (-want +got):\n%s", diff)
						}
						return true
					case *arroyo.Revoked:
						return false
					}
					t.Fatalf("got %T, want a Lost", ev)
					return true
				})
				back := expect[*arroyo.Assigned](t, c)
				if diff := cmp.Diff([]int32{0, 1}, numbers(back.Epochs)); diff != "" {
					t.Fatalf("assigned again (-want +got):\n%s", diff)
				}
				first := make(map[int32]int64)
				records = 0
				poll(t, c, func(ev arroyo.Event) bool {
					f := ev.(*arroyo.Fetched)
					if _, ok := first[f.Epoch.Number]; !ok {
						first[f.Epoch.Number] = f.Records[0].Offset
					}
					records += len(f.Records)
					return records == 5
				})
				if diff := cmp.Diff(map[int32]int64{0: 2, 1: 3}, first); diff != "" {
					t.Errorf("first offsets of the new epochs (-want +got):\n%s", diff)
				}
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{back.Epochs[0]: 5}); err != nil {
					t.Errorf("Commit of a new epoch: %v", err)
				}
			})
		})
	}
}

func TestLostFencesAtOnce(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := newConsumer(t, broker, opts...)
		defer c.Close()
		old := expect[*arroyo.Assigned](t, c).Epochs
		broker.Cluster().Fault(
			kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID},
			kfake.Fault{Keys: []kmsg.Key{kmsg.ConsumerGroupHeartbeat}, Err: kerr.FencedMemberEpoch},
		)
		var lost *arroyo.Lost
		poll(t, c, func(ev arroyo.Event) bool {
			var ok bool
			lost, ok = ev.(*arroyo.Lost)
			return ok
		})
		if diff := cmp.Diff(old, lost.Epochs); diff != "" {
			t.Errorf("lost (-want +got):\n%s", diff)
		}
		if !errors.Is(lost.Reason, arroyo.ErrSessionEnded) {
			t.Errorf("lost because of %v, want ErrSessionEnded", lost.Reason)
		}
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 1}); !errors.Is(err, arroyo.ErrFenced) {
			t.Errorf("Commit of a lost epoch: %v, want ErrFenced", err)
		}
		var back *arroyo.Assigned
		poll(t, c, func(ev arroyo.Event) bool {
			var ok bool
			back, ok = ev.(*arroyo.Assigned)
			return ok
		})
		if diff := cmp.Diff([]int32{0, 1}, numbers(back.Epochs)); diff != "" {
			t.Errorf("assigned again (-want +got):\n%s", diff)
		}
	})
}

func TestDrain(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 2)
		c := newConsumer(t, broker, append(opts, kgo.SessionTimeout(10*time.Second))...)
		defer c.Close()
		assigned := expect[*arroyo.Assigned](t, c)
		expect[*arroyo.Fetched](t, c)
		expect[*arroyo.Fetched](t, c)

		c.Drain(30 * time.Second)
		c.Drain(time.Hour) // does nothing
		revoked := expect[*arroyo.Revoked](t, c)
		if diff := cmp.Diff(assigned.Epochs, revoked.Epochs); diff != "" {
			t.Errorf("revoked (-want +got):\n%s", diff)
		}
		time.Sleep(25 * time.Second) // work, for longer than a session
		if n := broker.Members(group); n != 1 {
			t.Errorf("the group has %d members while the drain goes on, want 1", n)
		}
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{revoked.Epochs[0]: 1, revoked.Epochs[1]: 1}); err != nil {
			t.Errorf("the last commit: %v", err)
		}
		began := time.Now()
		expect[*arroyo.Closed](t, c)
		if took := time.Since(began); took > time.Second {
			t.Errorf("leaving took %v", took)
		}
		if n := broker.Members(group); n != 0 {
			t.Errorf("the group has %d members after Closed, want 0", n)
		}
		if _, err := c.Poll(t.Context()); !errors.Is(err, arroyo.ErrClosed) {
			t.Errorf("Poll after Closed: %v, want ErrClosed", err)
		}
	})
}

func TestDrainWithNothingAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		never := newConsumer(t, broker)
		never.Drain(time.Minute)
		expect[*arroyo.Closed](t, never)
		never.Close()

		broker.Join(group, topic)
		broker.WaitStable(group, 1)
		idle := newConsumer(t, broker)
		time.AfterFunc(10*time.Second, func() { idle.Drain(time.Minute) })
		poll(t, idle, func(ev arroyo.Event) bool {
			_, ok := ev.(*arroyo.Closed)
			return ok
		})
		if n := broker.Members(group); n != 1 {
			t.Errorf("the group has %d members, want the rival alone", n)
		}
		idle.Close()
	})
}

// A peer that takes long to give its partitions back keeps a classic join
// waiting. Leaving does not wait for it. (Nor does the last commit: see
// TestI2LastCommitAroundAJoinIsTheLast.)
func TestDrainDuringAJoin(t *testing.T) {
	for _, p := range protocols[:2] {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 4))
				produce(broker, 8)
				slow := newConsumer(t, broker, p.opts...)
				defer slow.Close()
				slowDone := inBackground(t, slow, func(ev arroyo.Event) {
					if r, ok := ev.(*arroyo.Revoked); ok {
						r.Hold() // until the deadline, 52 s
					}
				})
				broker.WaitStable(group, 1)
				c := newConsumer(t, broker, p.opts...)
				defer c.Close()
				time.AfterFunc(20*time.Second, func() { c.Drain(10 * time.Second) })
				began := time.Now()
				poll(t, c, func(ev arroyo.Event) bool {
					_, ok := ev.(*arroyo.Closed)
					return ok
				})
				if took := time.Since(began); took > 21*time.Second {
					t.Errorf("it took %v to get out of a join, want about 20 s", took)
				}
				if n := broker.Members(group); n != 1 {
					t.Errorf("the group has %d members after the leave, want the slow peer alone", n)
				}
				slow.Close()
				<-slowDone
			})
		})
	}
}

func TestCloseIsBounded(t *testing.T) {
	var protocol []kgo.Opt
	for _, when := range []struct {
		name    string
		prepare func(t *testing.T, b *memkafka.Broker, h *memkafka.Host, c *arroyo.Consumer)
	}{
		{"before the first poll", func(*testing.T, *memkafka.Broker, *memkafka.Host, *arroyo.Consumer) {}},
		{"healthy", func(t *testing.T, _ *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
		}},
		{"polled and not committed", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			produce(b, 10)
			expect[*arroyo.Fetched](t, c)
		}},
		{"black hole", func(t *testing.T, b *memkafka.Broker, h *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			produce(b, 10)
			expect[*arroyo.Fetched](t, c)
			h.BlackHole()
		}},
		{"broker gone", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			b.Down()
		}},
		{"broker was never there", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			b.Down()
			expect[*arroyo.Failed](t, c)
		}},
		{"held revoke", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			time.AfterFunc(time.Second, func() { b.Join(group, topic, protocol...) })
			expect[*arroyo.Revoked](t, c).Hold()
		}},
		{"broker accepts and never answers", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			for _, kind := range []kmsg.Key{kmsg.LeaveGroup, kmsg.Heartbeat, kmsg.OffsetFetch, kmsg.Fetch, kmsg.Metadata} {
				b.Swallow(kind)
			}
		}},
		{"join in flight", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			b.Swallow(kmsg.JoinGroup)
			b.Swallow(kmsg.ConsumerGroupHeartbeat)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if ev, err := c.Poll(ctx); err == nil {
				t.Fatalf("got %T while the join is not answered", ev)
			}
		}},
		{"draining", func(t *testing.T, b *memkafka.Broker, _ *memkafka.Host, c *arroyo.Consumer) {
			expect[*arroyo.Assigned](t, c)
			c.Drain(time.Hour)
			expect[*arroyo.Revoked](t, c).Hold()
		}},
	} {
		t.Run(when.name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				host := broker.Host()
				c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(host.ClientOptions()...), arroyo.ClientOptions(opts...))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				protocol = opts
				when.prepare(t, broker, host, c)
				began := time.Now()
				if err := c.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				if err := c.Close(); err != nil {
					t.Errorf("second Close: %v", err)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("Close took %v", took)
				}
				if _, err := c.Poll(t.Context()); !errors.Is(err, arroyo.ErrClosed) {
					t.Errorf("Poll after Close: %v, want ErrClosed", err)
				}
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{{Partition: arroyo.Partition{Topic: topic}}: 1}); !errors.Is(err, arroyo.ErrClosed) {
					t.Errorf("Commit after Close: %v, want ErrClosed", err)
				}
				time.Sleep(5 * time.Minute)
				for p, at := range broker.Committed(group, topic) {
					if at != 0 { // where the group starts
						t.Errorf("partition %d: %d is committed, and nobody asked for it", p, at)
					}
				}
			})
		})
	}
}

func TestCloseEndsAPollThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := newConsumer(t, broker)
		done := inBackground(t, c, func(arroyo.Event) {})
		time.Sleep(time.Minute)
		c.Close()
		<-done
	})
}
