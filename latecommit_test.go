package arroyo_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// S3: after a revoke was released, no commit of ours for it ever reaches the
// broker: with slow revokes, slow commits, joins of others, and a broker that
// answers after everybody has given up.
func TestS3NoCommitAfterTheRelease(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...), arroyo.ClientOptions(kgo.ClientID("watched")))
		var mu sync.Mutex
		held := make(map[int32]bool) // between Assigned and release
		broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			broker.Cluster().KeepControl()
			mu.Lock()
			defer mu.Unlock()
			for _, rt := range kreq.(*kmsg.OffsetCommitRequest).Topics {
				for _, rp := range rt.Partitions {
					if !held[rp.Partition] {
						t.Errorf("a commit for partition %d came while it was not held", rp.Partition)
					}
				}
			}
			return nil, nil, false
		})
		broker.Delay(kmsg.OffsetCommit, 2*time.Second)

		// The application commits all the time, whatever it holds.
		stop := make(chan struct{})
		var committers sync.WaitGroup
		for range 3 {
			committers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(300 * time.Millisecond):
					}
					for _, e := range c.Assignment() {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second) // gives up before the answer
						_ = c.Commit(ctx, map[arroyo.Epoch]int64{e: 1})
						cancel()
					}
				}
			})
		}
		done := inBackground(t, c, func(ev arroyo.Event) {
			switch ev := ev.(type) {
			case *arroyo.Assigned:
				mu.Lock()
				for _, e := range ev.Epochs {
					held[e.Number] = true
				}
				mu.Unlock()
			case *arroyo.Revoked:
				release := ev.Hold()
				time.AfterFunc(20*time.Second, release)
				// Held until kgo's hook returns, which is after the
				// release, and after the commit in flight.
				epochs := ev.Epochs
				go func() {
					for {
						time.Sleep(100 * time.Millisecond)
						free := true
						for _, e := range epochs {
							for _, open := range c.Assignment() {
								free = free && open != e
							}
						}
						if free {
							break
						}
					}
					time.Sleep(2500 * time.Millisecond) // one may be on its way
					mu.Lock()
					defer mu.Unlock()
					for _, e := range epochs {
						still := false
						for _, open := range c.Assignment() {
							still = still || open.Partition == e.Partition
						}
						held[e.Number] = still
					}
				}()
			}
		})
		broker.WaitStable(group, 1)
		for range 3 {
			rival := broker.Join(group, topic, opts...)
			time.Sleep(time.Minute)
			rival.Leave()
			time.Sleep(time.Minute)
		}
		close(stop)
		committers.Wait()
		c.Close()
		<-done
		time.Sleep(time.Minute) // for the goroutines of the handler
	})
}

// A commit to a broker that never answers blocks neither Poll nor the deadline
// of a revoke.
func TestCommitToABlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := openConsumer(t, broker)
		epochs := expect[*arroyo.Assigned](t, c).Epochs
		fetched := make(chan struct{}, 100)
		done := inBackground(t, c, func(ev arroyo.Event) {
			if _, ok := ev.(*arroyo.Fetched); ok {
				fetched <- struct{}{}
			}
		})
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		hole := broker.Swallow(kmsg.OffsetCommit)
		result := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			result <- c.Commit(ctx, map[arroyo.Epoch]int64{epochs[0]: 0, epochs[1]: 0})
		}()
		time.Sleep(time.Second)
		produce(broker, 1)
		<-fetched
		// Kafka answers in order, so that heartbeats on the commit's
		// connection are not answered either: the partitions are revoked or
		// lost, whichever comes first, and the group goes on.
		rival := broker.Join(group, topic)
		began := time.Now()
		for len(rival.Assigned()) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 90*time.Second {
			t.Errorf("the rival waited %v for a partition", took)
		}
		if err := <-result; err == nil {
			t.Error("a commit that was never answered succeeded")
		}
		hole.Heal()
		c.Close()
		<-done
	})
}

// Everything that is held in one rebalance shares one budget.
func TestHoldsShareOneBudget(t *testing.T) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				c := openConsumer(t, broker, arroyo.ClientOptions(p.opts...))
				expect[*arroyo.Assigned](t, c)
				done := inBackground(t, c, func(ev arroyo.Event) {
					switch ev := ev.(type) {
					case *arroyo.Revoked:
						time.AfterFunc(30*time.Second, ev.Hold())
					case *arroyo.Assigned:
						ev.Hold() // and never release
					}
				})
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				rival := broker.Join(group, topic, p.opts...)
				began := time.Now()
				for len(rival.Assigned()) != 1 {
					time.Sleep(100 * time.Millisecond)
				}
				broker.WaitStable(group, 2)
				// Heartbeats show the rebalance within 5 s; 52 s is the budget.
				if took := time.Since(began); took < 29*time.Second || took > 60*time.Second {
					t.Errorf("the rebalance took %v", took)
				}
				time.Sleep(time.Minute)
				rival.Leave()
				broker.WaitStable(group, 1)
				c.Close()
				<-done
			})
		})
	}
}

// A static member whose ID another one takes is told, and that it is fatal.
func TestFencedStaticMember(t *testing.T) {
	for _, p := range protocols[:2] {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				static := append([]kgo.Opt{kgo.InstanceID("one")}, p.opts...)
				c := openConsumer(t, broker, arroyo.ClientOptions(static...))
				expect[*arroyo.Assigned](t, c)
				events := make(chan arroyo.Event, 1000)
				done := inBackground(t, c, func(ev arroyo.Event) { events <- ev })
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				other := openConsumer(t, broker, arroyo.ClientOptions(static...))
				otherDone := inBackground(t, other, func(arroyo.Event) {})
				lost := false
				for ev := range events {
					switch ev := ev.(type) {
					case *arroyo.Lost:
						lost = true
					case *arroyo.Failed:
						if !lost || !ev.Fatal || !errors.Is(ev.Err, kerr.FencedInstanceID) {
							t.Errorf("Failed %+v (lost: %v), want a fatal FENCED_INSTANCE_ID after the Lost", ev, lost)
						}
						c.Close()
					default:
						continue
					}
					if _, ok := ev.(*arroyo.Failed); ok {
						break
					}
				}
				<-done
				other.Close()
				<-otherDone
			})
		})
	}
}

// A static member that drains keeps its place in the group.
func TestStaticMemberStays(t *testing.T) {
	for _, p := range protocols[:2] {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				opts := append([]kgo.Opt{kgo.InstanceID("one")}, p.opts...)
				for range 3 { // restarts, each within the session timeout
					var ledger ledger
					m := startMember(t, broker, ledger.by("one"), opts)
					before := len(broker.Records(topic))
					produce(broker, 10)
					broker.WaitCommitted(group, topic, int64(before+10))
					m.shutDown(t)
					if n := broker.Members(group); n != 1 {
						t.Errorf("the group has %d members after a static one went, want 1 that is waited for", n)
					}
					if n := len(ledger.all()); n != 10 {
						t.Errorf("%d records were processed, want 10", n)
					}
					time.Sleep(20 * time.Second)
				}
			})
		})
	}
}

// S29: a commit that the broker applies long after it was given up, and after a
// newer one, does not stand.
func TestS29LateCommitDoesNotStand(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		var ledger ledger
		m := startMember(t, broker, ledger.by("m"), append([]kgo.Opt{kgo.RequestTimeoutOverhead(5 * time.Second)}, opts...))
		produce(broker, 10)
		broker.WaitCommitted(group, topic, 10)
		// Held on its way, and not answered; the client gives up and sends it
		// again, and then newer ones.
		late := broker.Delay(kmsg.OffsetCommit, 30*time.Second, memkafka.Times(1))
		produce(broker, 10)
		late.Wait(1)
		time.Sleep(10 * time.Second)
		produce(broker, 10)
		broker.WaitCommitted(group, topic, 30)
		time.Sleep(40 * time.Second) // the late one has landed
		if got := broker.Committed(group, topic)[0]; got != 30 {
			t.Errorf("committed %d, want 30", got)
		}
		m.shutDown(t)
		expectCommitted(t, broker)
	})
}
