package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// put produces records to partition 0, each in a batch of its own.
func put(broker *memkafka.Broker, what string, n int) {
	for i := range n {
		broker.ProduceRecords(&kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", what, i)})
	}
}

// A log that loses its end, below what was read of it, ends the epoch; the next
// one begins where the log was cut off, and has the reason. What comes in place
// of what is gone is read, and a restart goes on from what was committed of it.
func TestTruncatedLog(t *testing.T) {
	for name, meanwhile := range map[string]int{"nothing in its place": 0, "less than was lost": 1, "more than was lost": 20} {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				put(broker, "old", 10)
				c := openConsumer(t, broker, arroyo.ClientOptions(opts...), arroyo.ClientOptions(kgo.MetadataMinAge(10*time.Millisecond)))
				old := expect[*arroyo.Assigned](t, c).Epochs[0]
				read(t, c, 10)
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old: 8}); err != nil {
					t.Fatal(err)
				}
				broker.Truncate(topic, 0, 6)
				put(broker, "new", meanwhile)

				var loss *kgo.ErrDataLoss
				lost := expect[*arroyo.Lost](t, c)
				if !errors.As(lost.Reason, &loss) || loss.ConsumedTo != 10 || loss.ResetTo != 6 || lost.Epochs[0] != old {
					t.Errorf("%v lost because of %v", lost.Epochs, lost.Reason)
				}
				back := expect[*arroyo.Assigned](t, c)
				if !errors.As(back.Reason, &loss) || len(back.Epochs) != 1 || back.Epochs[0].N <= old.N {
					t.Errorf("%v assigned because of %v", back.Epochs, back.Reason)
				}
				if at, ok := c.Position(back.Epochs[0]); !ok || at != 6 {
					t.Errorf("the new epoch begins at %d, want 6", at)
				}
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old: 10}); !errors.Is(err, arroyo.ErrFenced) {
					t.Errorf("Commit of the old epoch: %v, want ErrFenced", err)
				}
				put(broker, "newer", 2)
				next := 6 + int64(meanwhile) + 2
				var want []int64
				for at := int64(6); at < next; at++ {
					want = append(want, at)
				}
				if diff := cmp.Diff(map[int32][]int64{0: want}, read(t, c, meanwhile+2)); diff != "" {
					t.Errorf("read (-want +got):\n%s", diff)
				}
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{back.Epochs[0]: 7}); err != nil {
					t.Fatal(err)
				}
				c.Close()
				again := openConsumer(t, broker, arroyo.ClientOptions(opts...))
				expect[*arroyo.Assigned](t, again)
				if diff := cmp.Diff(map[int32][]int64{0: want[1:]}, read(t, again, len(want)-1)); diff != "" {
					t.Errorf("read after a restart (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A leader that moves is none of the application's business: no event but the
// records, each once and in order, and the epoch goes on.
func TestLeaderMoves(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic(topic, 2))
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		assigned := expect[*arroyo.Assigned](t, c)
		const rounds, each = 12, 10
		var producing sync.WaitGroup
		defer producing.Wait()
		producing.Go(func() {
			for i := range int32(rounds) {
				produce(broker, 2*each)
				time.Sleep(700 * time.Millisecond)
				broker.MoveLeader(topic, i%2, (i+1)%3)
				produce(broker, 2*each)
				time.Sleep(700 * time.Millisecond)
			}
		})
		next := make(map[arroyo.Epoch]int64)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for next[assigned.Epochs[0]]+next[assigned.Epochs[1]] < rounds*4*each {
			ev, err := c.Poll(ctx)
			if err != nil {
				t.Fatalf("read %v: %v", next, err)
			}
			f, ok := ev.(*arroyo.Fetched)
			if !ok {
				t.Fatalf("%T %+v", ev, ev)
			}
			for _, r := range f.Records {
				if r.Offset != next[f.Epoch] {
					t.Fatalf("%s: offset %d after %d", f.Epoch, r.Offset, next[f.Epoch]-1)
				}
				next[f.Epoch]++
			}
			if err := c.Commit(ctx, map[arroyo.Epoch]int64{f.Epoch: f.Next}); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(map[int32]int64{0: rounds * 2 * each, 1: rounds * 2 * each}, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed (-want +got):\n%s", diff)
		}
	})
}

// A leader that moves to a broker that has all but the end, which nobody has
// read yet, loses records, but none that was seen: there is no new epoch.
func TestTruncatedBeyondTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		put(broker, "old", 10)
		c := openConsumer(t, broker)
		e := expect[*arroyo.Assigned](t, c).Epochs[0]
		read(t, c, 10)
		if err := c.Pause(e.Partition); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a fetch under way may take it along
		put(broker, "lost", 5)
		broker.Truncate(topic, 0, 10)
		put(broker, "new", 5)
		if err := c.Resume(e.Partition); err != nil {
			t.Fatal(err)
		}
		f := expect[*arroyo.Fetched](t, c)
		if f.Epoch != e || f.Records[0].Offset != 10 || string(f.Records[0].Value) != "new 0" {
			t.Errorf("%s: %q at %d", f.Epoch, f.Records[0].Value, f.Records[0].Offset)
		}
	})
}
