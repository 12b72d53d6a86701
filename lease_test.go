package arroyo_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// A session that is lost while a Revoked is held is noticed within about a
// heartbeat interval, and becomes a Lost; kgo would tell after the release.
func TestSessionLostWhileHeld(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				c := openConsumer(t, broker, arroyo.ClientOptions(p.opts...))
				expect[*arroyo.Assigned](t, c)
				events := make(chan arroyo.Event, 100)
				done := inBackground(t, c, func(ev arroyo.Event) {
					if r, ok := ev.(*arroyo.Revoked); ok {
						r.Hold()
					}
					events <- ev
				})
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				rival := broker.Join(group, topic, p.opts...)
				revoked := (<-events).(*arroyo.Revoked)
				time.Sleep(10 * time.Second)
				if len(events) > 0 {
					t.Fatalf("got %T while the session was fine", <-events)
				}
				gone := broker.Cluster().Fault(
					kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, Count: -1},
					kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: group, Err: kerr.UnknownMemberID, Count: -1},
				)
				began := time.Now()
				lost, ok := (<-events).(*arroyo.Lost)
				if !ok || !slices.Equal(lost.Epochs, revoked.Epochs) || !errors.Is(lost.Reason, arroyo.ErrSessionEnded) {
					t.Errorf("got %+v, want the held epochs lost", lost)
				}
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("it took %v, want about a heartbeat interval of 3 s", took)
				}
				gone.Remove()
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{revoked.Epochs[0]: 0}); !errors.Is(err, arroyo.ErrFenced) {
					t.Errorf("Commit: %v, want ErrFenced", err)
				}
				// Nobody releases it, and the rebalance goes on all the same.
				for len(rival.Assigned()) == 0 {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("the rebalance went on after %v; there is nothing left to wait for", took)
				}
				c.Close()
				<-done
			})
		})
	}
}

// A member that is cut off fences itself before others can have its
// partitions; when the network heals it makes progress again.
func TestI10CutOffMemberFencesItself(t *testing.T) {
	for name, cut := range map[string]func(*memkafka.Host){
		"refused":     (*memkafka.Host).Cut,
		"black-holed": (*memkafka.Host).BlackHole,
		"slow, then black-holed": func(h *memkafka.Host) {
			h.Slow(400 * time.Millisecond)
			time.Sleep(20 * time.Second)
			h.BlackHole()
		},
	} {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 4))
				host := broker.Host()
				c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(host.ClientOptions()...), arroyo.ClientOptions(opts...))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				expect[*arroyo.Assigned](t, c)
				type at struct {
					ev   arroyo.Event
					when time.Time
				}
				events := make(chan at, 1000)
				done := inBackground(t, c, func(ev arroyo.Event) { events <- at{ev, time.Now()} })
				rival := broker.Join(group, topic, opts...)
				broker.WaitStable(group, 2)
				time.Sleep(10 * time.Second)
				for len(events) > 0 {
					<-events
				}
				held := c.Assignment()
				if len(held) != 2 {
					t.Fatalf("it has %v, want two partitions", held)
				}

				cut(host)
				cutAt := time.Now()
				var lost time.Time
				for lost.IsZero() {
					if e := <-events; isLost(e.ev) {
						lost = e.when
					}
				}
				broker.WaitStable(group, 1)
				if taken := time.Now(); len(rival.Assigned()) != 4 || taken.Before(lost) {
					t.Errorf("the rival had all %v after the cut, and it knew only %v after the cut", taken.Sub(cutAt), lost.Sub(cutAt))
				}
				if n := len(c.Assignment()); n != 0 {
					t.Errorf("it still holds %d partitions", n)
				}
				host.Heal()
				broker.WaitStable(group, 2)
				for len(c.Assignment()) != 2 {
					time.Sleep(time.Second)
				}
				for len(events) > 0 {
					<-events
				}
				produce(broker, 4)
				records := 0
				for records < 2 {
					if f, ok := (<-events).ev.(*arroyo.Fetched); ok {
						records += len(f.Records)
					}
				}
				c.Close()
				<-done
			})
		})
	}
}

func isLost(ev arroyo.Event) bool {
	_, ok := ev.(*arroyo.Lost)
	return ok
}

// A short cut that the group never notices: the lease runs out, and when the
// broker answers again the partitions come back although kgo calls no hook.
func TestLeaseComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := protocols[2].opts // kgo waits for ever under KIP-848
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		host := broker.Host()
		c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(host.ClientOptions()...), arroyo.ClientOptions(opts...),
			arroyo.GroupSessionTimeout(20*time.Second)) // less than the broker's 45 s
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		old := expect[*arroyo.Assigned](t, c).Epochs
		read(t, c, 10)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 2, old[1]: 3}); err != nil {
			t.Fatal(err)
		}
		host.BlackHole()
		began := time.Now()
		var lost *arroyo.Lost
		poll(t, c, func(ev arroyo.Event) bool {
			lost, _ = ev.(*arroyo.Lost)
			return lost != nil
		})
		if took := time.Since(began); !errors.Is(lost.Reason, arroyo.ErrLeaseExpired) || took > 18*time.Second {
			t.Errorf("lost because of %v after %v, want the lease to run out within 18 s", lost.Reason, took)
		}
		host.Heal()
		var back *arroyo.Assigned
		poll(t, c, func(ev arroyo.Event) bool {
			back, _ = ev.(*arroyo.Assigned)
			return back != nil
		})
		if len(back.Epochs) != 2 || !errors.Is(back.Reason, arroyo.ErrTakenBack) {
			t.Errorf("assigned %v because of %v, want both taken back", back.Epochs, back.Reason)
		}
		got := read(t, c, 5)
		if got[0][0] != 2 || got[1][0] != 3 {
			t.Errorf("read on from %d and %d, want the committed 2 and 3", got[0][0], got[1][0])
		}
	})
}

// A member that waits in a join for a slow peer is not cut off.
func TestLeaseDuringALongJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		slow := openConsumer(t, broker)
		slowDone := inBackground(t, slow, func(ev arroyo.Event) {
			if r, ok := ev.(*arroyo.Revoked); ok {
				r.Hold() // until its deadline
			}
		})
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		c := openConsumer(t, broker, arroyo.ClientOptions(kgo.SessionTimeout(10*time.Second)))
		done := inBackground(t, c, func(ev arroyo.Event) {
			if isLost(ev) {
				t.Errorf("lost because of %v", ev.(*arroyo.Lost).Reason)
			}
		})
		time.Sleep(5 * time.Minute)
		if len(c.Assignment()) != 2 {
			t.Errorf("it has %v, want two partitions", c.Assignment())
		}
		c.Close()
		slow.Close()
		<-done
		<-slowDone
	})
}

func TestEventsOwnsTheConsumer(t *testing.T) {
	for _, leave := range []string{"context", "early"} {
		t.Run(leave, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				produce(broker, 3)
				c := openConsumer(t, broker)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var kinds []string
				for ev := range c.Events(ctx) {
					switch ev := ev.(type) {
					case *arroyo.Assigned:
						kinds = append(kinds, "assigned")
					case *arroyo.Fetched:
						kinds = append(kinds, "fetched")
						if err := c.Commit(ctx, map[arroyo.Epoch]int64{ev.Epoch: ev.Next}); err != nil {
							t.Errorf("Commit: %v", err)
						}
						cancel()
					case *arroyo.Revoked:
						kinds = append(kinds, "revoked")
					case *arroyo.Closed:
						kinds = append(kinds, "closed")
					}
					if leave == "early" && len(kinds) == 2 {
						break
					}
				}
				want := []string{"assigned", "fetched", "revoked", "closed"}
				if leave == "early" {
					want = want[:2]
				}
				if !slices.Equal(kinds, want) {
					t.Errorf("events %v, want %v", kinds, want)
				}
				if _, err := c.Poll(t.Context()); !errors.Is(err, arroyo.ErrClosed) {
					t.Errorf("Poll after the loop: %v, want ErrClosed", err)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members, want 0", n)
				}
			})
		})
	}
}

func TestRegex(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("eventual", 1), memkafka.Topic("others", 1))
		c, err := arroyo.NewConsumer(group, []string{"event.*"}, arroyo.Regex(),
			arroyo.ClientOptions(broker.ClientOptions()...), arroyo.ClientOptions(opts...), arroyo.ClientOptions(kgo.MetadataMaxAge(10*time.Second)))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		topics := make(map[string]int)
		poll(t, c, func(ev arroyo.Event) bool {
			if a, ok := ev.(*arroyo.Assigned); ok {
				for _, e := range a.Epochs {
					topics[e.Topic]++
				}
			}
			return topics["events"] == 2 && topics["eventual"] == 1
		})
		broker.CreateTopic("eventide", 1)
		broker.Produce("eventide", "x")
		poll(t, c, func(ev arroyo.Event) bool {
			f, ok := ev.(*arroyo.Fetched)
			return ok && f.Epoch.Topic == "eventide"
		})
		if topics["others"] != 0 {
			t.Error("a topic that does not match was assigned")
		}
	})
}

func TestCommittedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := openConsumer(t, broker, arroyo.CommittedEvents())
		epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
		if start := expect[*arroyo.Committed](t, c); start.Err != nil || start.Offsets[epoch] != 0 {
			t.Errorf("got %+v, want the commit of the start", start)
		}
		broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed})
		_ = c.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 0})
		if failed := expect[*arroyo.Committed](t, c); !errors.Is(failed.Err, kerr.GroupAuthorizationFailed) {
			t.Errorf("got %+v, want the failure", failed)
		}
	})
}
