package arroyo_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
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
)

// After the Revoked of a drain come no records of its epochs, held or not.
func TestNothingComesAfterTheRevokedOfADrain(t *testing.T) {
	for _, hold := range []bool{true, false} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 1000)
				c := openConsumer(t, broker, arroyo.ClientOptions(kgo.FetchMaxPartitionBytes(500)))
				expect[*arroyo.Assigned](t, c)
				expect[*arroyo.Fetched](t, c)
				c.Drain(30 * time.Second)
				revoked := false
				poll(t, c, func(ev arroyo.Event) bool {
					switch ev := ev.(type) {
					case *arroyo.Revoked:
						revoked = true
						if hold {
							time.AfterFunc(10*time.Second, ev.Hold())
						}
					case *arroyo.Fetched:
						if revoked {
							t.Errorf("records of %s came after its Revoked", ev.Epoch)
						}
					case *arroyo.Closed:
						return true
					}
					return false
				})
			})
		}
	}
}

// Each epoch that is out of range is told, also if the one before was.
func TestOutOfRangeIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 10)
		c := openConsumer(t, broker)
		e := expect[*arroyo.Assigned](t, c).Epochs[0]
		read(t, c, 10)
		for _, at := range []int64{1000, 2000} {
			if err := c.Seek(map[arroyo.Epoch]int64{e: at}); err != nil {
				t.Fatal(err)
			}
			expect[*arroyo.Lost](t, c)
			e = expect[*arroyo.Assigned](t, c).Epochs[0]
			failed := expect[*arroyo.Failed](t, c)
			var out *arroyo.OffsetOutOfRangeError
			if !errors.As(failed.Err, &out) || out.Offset != at || out.End != 10 || failed.Epoch != e || !failed.Fatal {
				t.Errorf("Failed %+v, want offset %d out of a log that ends at 10", failed, at)
			}
		}
	})
}

// What is released late touches no newer epoch; and StartAt is too late after
// the release.
func TestLateReleaseOfAnAssigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 10)
		eager := kgo.Balancers(kgo.RangeBalancer())
		c := openConsumer(t, broker, arroyo.ClientOptions(eager))
		e := expect[*arroyo.Assigned](t, c).Epochs[0]
		read(t, c, 10)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{e: 8}); err != nil {
			t.Fatal(err)
		}
		if err := c.Seek(map[arroyo.Epoch]int64{e: 2}); err != nil {
			t.Fatal(err)
		}
		expect[*arroyo.Lost](t, c)
		sought := expect[*arroyo.Assigned](t, c)
		if err := sought.StartAt(sought.Epochs[0], 3); err != nil {
			t.Fatal(err)
		}
		if at, _ := c.Position(sought.Epochs[0]); at != 3 {
			t.Errorf("Position after StartAt: %d, want 3", at)
		}
		release := sought.Hold()
		kick(t, broker) // it is lost, and comes back
		var back *arroyo.Assigned
		poll(t, c, func(ev arroyo.Event) bool {
			back, _ = ev.(*arroyo.Assigned)
			return back != nil
		})
		if got := read(t, c, 2)[0]; got[0] != 8 {
			t.Errorf("the new epoch read %v, want 8 and 9", got)
		}
		release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if ev, err := c.Poll(ctx); err == nil {
			t.Errorf("got %T after the late release, want nothing", ev)
		}
		var late *arroyo.OptionError
		if err := sought.StartAt(sought.Epochs[0], 5); !errors.As(err, &late) {
			t.Errorf("StartAt after the release: %v, want an OptionError", err)
		}
	})
}

// A commit that waits for a join to end is told when its epochs are lost.
func TestCommitThatWaitsIsToldOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		c := openConsumer(t, broker, arroyo.ClientOptions(kgo.ClientID("late")))
		expect[*arroyo.Assigned](t, c)
		done := inBackground(t, c, func(arroyo.Event) {})
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		slow := broker.Delay(kmsg.JoinGroup, 20*time.Minute, memkafka.OfMember("late"))
		broker.Join(group, topic)
		slow.Wait(1) // the gate is shut, and everything still held
		time.Sleep(time.Second)
		held := c.Assignment()
		if len(held) != 4 {
			t.Fatalf("it holds %v during the join, want all", held)
		}
		began := time.Now()
		err := c.Commit(t.Context(), map[arroyo.Epoch]int64{held[0]: 0})
		var refused *arroyo.NotHeldError
		if took := time.Since(began); !errors.As(err, &refused) || took > 5*time.Minute {
			t.Errorf("Commit: %v after %v, want a NotHeldError when the lease runs out", err, took)
		}
		slow.Heal()
		c.Close()
		<-done
	})
}

// A rebalance that cuts the start of some partitions short does not make kgo
// forget where others were told to start.
func TestStartAtOutlastsARebalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		produce(broker, 40)
		c := openConsumer(t, broker)
		assigned := expect[*arroyo.Assigned](t, c)
		for _, e := range assigned.Epochs[:3] {
			if err := assigned.StartAt(e, 7); err != nil {
				t.Fatal(err)
			}
		}
		// The fourth one's start cannot be found out before the rebalance.
		unknown := broker.Fail(kmsg.ListOffsets, kerr.UnknownServerError)
		first := make(map[arroyo.Epoch]int64)
		var mu sync.Mutex
		done := inBackground(t, c, func(ev arroyo.Event) {
			mu.Lock()
			defer mu.Unlock()
			if f, ok := ev.(*arroyo.Fetched); ok {
				if _, seen := first[f.Epoch]; !seen {
					first[f.Epoch] = f.Records[0].Offset
				}
			}
		})
		unknown.Wait(1)
		broker.Join(group, topic)
		broker.WaitStable(group, 2)
		unknown.Heal()
		time.Sleep(time.Minute)
		mu.Lock()
		kept := 0
		for _, e := range assigned.Epochs[:3] {
			if offset, ok := first[e]; ok {
				kept++
				if offset != 7 {
					t.Errorf("%s was read from %d, want 7 as StartAt said", e, offset)
				}
			}
		}
		if kept == 0 {
			t.Errorf("none of the partitions with a StartAt was read: %v", first)
		}
		mu.Unlock()
		c.Close()
		<-done
	})
}

// A new epoch of a partition that kgo has had all the while goes on where it is
// when others are assigned, of which alone the committed offsets are fetched.
func TestSeekOutlastsAnotherAssignment(t *testing.T) {
	for _, p := range protocols {
		if p.name == "eager" {
			continue // there all epochs end
		}
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, 20)
				c := openConsumer(t, broker, arroyo.ClientOptions(p.opts...))
				expect[*arroyo.Assigned](t, c)
				read(t, c, 20)
				rival := broker.Join(group, topic, p.opts...)
				theirs := expect[*arroyo.Revoked](t, c).Epochs[0].Number
				ours := 1 - theirs
				e := c.Assignment()[0]
				if e.Number == theirs {
					e = c.Assignment()[1]
				}
				if err := c.Seek(map[arroyo.Epoch]int64{e: 4}); err != nil {
					t.Fatal(err)
				}
				expect[*arroyo.Lost](t, c)
				e = expect[*arroyo.Assigned](t, c).Epochs[0]
				read(t, c, 6)

				rival.Leave()
				if got := numbers(expect[*arroyo.Assigned](t, c).Epochs); !slices.Equal(got, []int32{theirs}) {
					t.Fatalf("assigned: %v, want %d", got, theirs)
				}
				if got := read(t, c, 10); len(got[theirs]) != 10 {
					t.Errorf("read %v, want what is in partition %d", got, theirs)
				}
				for i := range int64(2) {
					time.Sleep(time.Second) // a repair would begin
					produce(broker, 2)
					if diff := cmp.Diff(map[int32][]int64{ours: {10 + i}, theirs: {10 + i}}, read(t, c, 2)); diff != "" {
						t.Errorf("read (-want +got):\n%s", diff)
					}
				}
				if at, ok := c.Position(e); !ok || at != 12 {
					t.Errorf("Position %d, %v; want 12", at, ok)
				}
			})
		})
	}
}

// Nor is what was sought forgotten when the start of the old epoch comes late.
func TestSeekBeforeTheStartIsKnown(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		slow := broker.Delay(kmsg.OffsetFetch, time.Hour)
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		old := expect[*arroyo.Assigned](t, c).Epochs
		slow.Wait(1)
		if err := c.Seek(map[arroyo.Epoch]int64{old[0]: 4, old[1]: 5}); err != nil {
			t.Fatal(err)
		}
		expect[*arroyo.Lost](t, c)
		back := expect[*arroyo.Assigned](t, c)
		if err := back.StartAt(back.Epochs[1], 2); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, slow.Heal)
		if diff := cmp.Diff(map[int32][]int64{0: {4, 5, 6, 7, 8, 9}, 1: {2, 3, 4, 5, 6, 7, 8, 9}}, read(t, c, 14)); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

// dials counts the connections that a client tries to open.
type dials struct {
	n    atomic.Int32
	most func() // called once, when there are too many
}

func (d *dials) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) {
	if d.n.Add(1) == 5000 {
		d.most()
	}
}

// Under KIP-848 kgo begins one session after another while it cannot fetch
// offsets. Time passes also when that happens in a drain.
func TestDrainWhileOffsetsCannotBeFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		host := broker.Host()
		slow := broker.Delay(kmsg.OffsetFetch, time.Hour)
		d := &dials{most: func() {
			t.Error("a client that drains dials without a pause")
			slow.Heal()
			host.Heal() // so that the test ends
		}}
		c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(append(host.ClientOptions(), kgo.ServerSideBalancer(), kgo.WithHooks(d))...))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		slow.Wait(1)
		host.Cut()
		begin := time.Now()
		c.Drain(5 * time.Second)
		poll(t, c, func(ev arroyo.Event) bool {
			if revoked, ok := ev.(*arroyo.Revoked); ok {
				time.AfterFunc(4*time.Second, revoked.Hold())
			}
			_, closed := ev.(*arroyo.Closed)
			return closed
		})
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the drain took %v", took)
		}
	})
}
