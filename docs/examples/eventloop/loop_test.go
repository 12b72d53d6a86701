package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	group      = "g"
	topic      = "events"
	partitions = 4
)

// handled is what loops have handled.
type handled struct {
	takes func(*kgo.Record) time.Duration
	fails func(*kgo.Record) error

	mu      sync.Mutex
	offsets [partitions][]int64
	fenced  int // records whose context ended
}

func (h *handled) handle(ctx context.Context, r *kgo.Record) error {
	if h.takes != nil {
		select {
		case <-time.After(h.takes(r)):
		case <-ctx.Done():
			h.mu.Lock()
			defer h.mu.Unlock()
			h.fenced++
			return ctx.Err()
		}
	}
	if h.fails != nil {
		if err := h.fails(r); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offsets[r.Partition] = append(h.offsets[r.Partition], r.Offset)
	return nil
}

func (h *handled) count(partition int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.offsets[partition])
}

// ended returns how many records had their context end.
func (h *handled) ended() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fenced
}

// expectOnce checks that everything was handled, once and in order.
func (h *handled) expectOnce(t *testing.T, broker *memkafka.Broker) {
	t.Helper()
	var want [partitions][]int64
	for _, r := range broker.Records(topic) {
		want[r.Partition] = append(want[r.Partition], r.Offset)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(want, h.offsets); diff != "" {
		t.Errorf("handled, in this order (-want +got):\n%s", diff)
	}
}

func after(d time.Duration) func(*kgo.Record) time.Duration {
	return func(*kgo.Record) time.Duration { return d }
}

func start(t *testing.T, host *memkafka.Host, h *handled, opts ...kgo.Opt) (*arroyo.Consumer, func() error) {
	t.Helper()
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(host.ClientOptions()...), arroyo.ClientOptions(opts...))
	if err != nil {
		t.Fatal(err)
	}
	stop := memkafka.Start(t, func(ctx context.Context) error { return loop(ctx, consumer, h.handle) })
	return consumer, stop
}

func produce(broker *memkafka.Broker, n int) { broker.Produce(topic, make([]string, n)...) }

// A partition that is slow is paused when its queue is full, and goes on when
// there is room again. It does not hold up the others.
func TestSlowPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		h := &handled{takes: func(r *kgo.Record) time.Duration {
			if r.Partition == 0 && r.Offset == 0 {
				return time.Minute
			}
			return 0
		}}
		consumer, stop := start(t, broker.Host(), h)
		broker.WaitStable(group, 1)
		for range 30 {
			produce(broker, partitions)
			time.Sleep(time.Second)
		}
		if read, _ := consumer.Position(consumer.Assignment()[0]); read != 5 {
			t.Errorf("%d records of the slow partition are read, want 5: one in hand and four in the queue", read)
		}
		for p := 1; p < partitions; p++ {
			if n := h.count(p); n != 30 {
				t.Errorf("%d records of partition %d are done, want 30", n, p)
			}
		}
		broker.WaitCommitted(group, topic, 30*partitions)
		if err := stop(); err != nil {
			t.Errorf("loop: %v", err)
		}
		h.expectOnce(t, broker)
	})
}

// A rival comes while records are handled, and goes again. It commits nothing,
// so all that it read is for the loop.
func TestRebalance(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"cooperative": nil,
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"KIP-848":     {kgo.ServerSideBalancer()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, partitions))
				h := &handled{takes: after(10 * time.Millisecond)}
				_, stop := start(t, broker.Host(), h, opts...)
				broker.WaitStable(group, 1)
				produce(broker, 2000)
				rival := broker.Join(group, topic, opts...)
				broker.WaitStable(group, 2)
				produce(broker, 2000)
				time.Sleep(time.Second)
				rival.Leave()
				broker.WaitStable(group, 1)
				broker.WaitCommitted(group, topic, 4000)
				if len(rival.Consumed()) == 0 {
					t.Error("the rival got nothing: there was no rebalance")
				}
				if err := stop(); err != nil {
					t.Errorf("loop: %v", err)
				}
				h.expectOnce(t, broker)
			})
		})
	}
}

// A loop that stops in the middle of its records hands over to another one.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		h := &handled{takes: after(10 * time.Millisecond)}
		_, stopFirst := start(t, broker.Host(), h)
		broker.WaitStable(group, 1)
		produce(broker, 2000)
		_, stopSecond := start(t, broker.Host(), h)
		broker.WaitStable(group, 2)
		time.Sleep(time.Second)
		began := time.Now()
		if err := stopFirst(); err != nil {
			t.Errorf("loop: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("stop took %v, want no more than the records in hand", took)
		}
		broker.WaitCommitted(group, topic, 2000)
		if err := stopSecond(); err != nil {
			t.Errorf("loop: %v", err)
		}
		h.expectOnce(t, broker)
		if n := broker.Members(group); n != 0 {
			t.Errorf("the group has %d members, want 0", n)
		}
	})
}

// A record that fails ends the loop. What other workers have done is committed,
// and the next loop begins with that record.
func TestRecordFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		errDisk := errors.New("disk full")
		h := &handled{takes: after(time.Millisecond), fails: func(r *kgo.Record) error {
			if r.Partition == 2 && r.Offset == 7 {
				return errDisk
			}
			return nil
		}}
		produce(broker, 400)
		_, stop := start(t, broker.Host(), h)
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, errDisk) {
			t.Errorf("loop: %v, want %v", err, errDisk)
		}
		for p, at := range broker.Committed(group, topic) {
			if n := h.count(int(p)); at != int64(n) {
				t.Errorf("partition %d: committed %d, and %d are done", p, at, n)
			}
		}
		h.fails = nil
		_, stop = start(t, broker.Host(), h)
		broker.WaitCommitted(group, topic, 400)
		if err := stop(); err != nil {
			t.Errorf("loop: %v", err)
		}
		h.expectOnce(t, broker)
	})
}

// A worker that has not come to an end by the deadline of a rebalance loses its
// partition: its context ends, and it commits nothing. The others go on.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		h := &handled{takes: func(r *kgo.Record) time.Duration {
			if r.Offset == 0 {
				return time.Hour
			}
			return 0
		}}
		_, stop := start(t, broker.Host(), h)
		broker.WaitStable(group, 1)
		produce(broker, 8*partitions)
		time.Sleep(time.Second)
		rival := broker.Join(group, topic)
		broker.WaitStable(group, 2)
		synctest.Wait()
		if n := h.ended(); n != 2 {
			t.Errorf("the contexts of %d records ended, want 2: those of the partitions that the rival took", n)
		}
		time.Sleep(time.Second)
		if n := len(rival.Consumed()); n != 2*8 {
			t.Errorf("the rival read %d records, want 16: nothing of them is committed", n)
		}
		if err := stop(); err != nil {
			t.Errorf("loop: %v", err)
		}
		if n := h.ended(); n != partitions {
			t.Errorf("the contexts of %d records ended, want all", n)
		}
	})
}

// A member that is cut off commits nothing for what it has lost, and comes back.
func TestMemberIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, partitions))
		begun := 0 // under h.mu
		h := new(handled)
		h.takes = func(*kgo.Record) time.Duration {
			h.mu.Lock()
			defer h.mu.Unlock()
			if begun++; begun <= partitions {
				return time.Hour
			}
			return 0
		}
		host := broker.Host()
		_, stop := start(t, host, h)
		broker.WaitStable(group, 1)
		produce(broker, 100*partitions)
		time.Sleep(2500 * time.Millisecond)
		host.BlackHole()
		time.Sleep(2 * time.Minute)
		if n := h.ended(); n != partitions {
			t.Errorf("the contexts of %d records ended, want %d", n, partitions)
		}
		for p, at := range broker.Committed(group, topic) {
			if at != 0 {
				t.Errorf("partition %d: committed %d, want 0", p, at)
			}
		}
		host.Heal()
		broker.WaitCommitted(group, topic, 100*partitions)
		if err := stop(); err != nil {
			t.Errorf("loop: %v", err)
		}
		h.expectOnce(t, broker)
	})
}

// What will not get better ends the loop.
func TestFatal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		_, stop := start(t, broker.Host(), new(handled))
		time.Sleep(time.Minute)
		if err := stop(); err == nil {
			t.Error("loop returned nil, want that there is no such topic")
		} else if _, ok := errors.AsType[*arroyo.UnknownTopicError](err); !ok {
			t.Errorf("loop: %v, want an UnknownTopicError", err)
		}
	})
}
