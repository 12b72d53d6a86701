package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

const (
	group = "loop"
	topic = "events"
)

// docs/events.md shows the loop, letter for letter.
func TestEventsShowsThisLoop(t *testing.T) {
	loop, err := os.ReadFile("loop.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../events.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, append([]byte("```go\n"), append(loop, "```\n"...)...)) {
		t.Error("docs/events.md does not have docs/loop/loop.go in it as it is")
	}
}

// handled counts the records that loops handled, in a topic of two partitions.
type handled struct {
	mu      sync.Mutex
	offsets [2][]int64
	pause   time.Duration // what a record takes
	failAt  int64         // the offset of partition 0 that fails; 0: none
}

var errHandle = errors.New("disk full")

func (h *handled) handle(r *kgo.Record) error {
	time.Sleep(h.pause)
	if h.failAt != 0 && r.Partition == 0 && r.Offset == h.failAt {
		return errHandle
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offsets[r.Partition] = append(h.offsets[r.Partition], r.Offset)
	return nil
}

// expectOnce checks that everything was handled, once and in order.
func (h *handled) expectOnce(t *testing.T, broker *memkafka.Broker) {
	t.Helper()
	var want [2][]int64
	for _, r := range broker.Records(topic) {
		want[r.Partition] = append(want[r.Partition], r.Offset)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if diff := cmp.Diff(want, h.offsets); diff != "" {
		t.Errorf("handled, in this order (-want +got):\n%s", diff)
	}
}

func start(t *testing.T, broker *memkafka.Broker, h *handled, opts ...kgo.Opt) (stop func() error) {
	t.Helper()
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(broker.ClientOptions()...), arroyo.ClientOptions(opts...))
	if err != nil {
		t.Fatal(err)
	}
	return memkafka.Start(t, func(ctx context.Context) error { return loop(ctx, consumer, h.handle) })
}

func produce(broker *memkafka.Broker, n int) { broker.Produce(topic, make([]string, n)...) }

// A rival comes while records are handled, and goes again. It commits nothing,
// so all that it read is for the loop.
func TestRebalance(t *testing.T) {
	for _, protocol := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"cooperative", nil},
		{"eager", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
		{"kip848", []kgo.Opt{kgo.ServerSideBalancer()}},
	} {
		t.Run(protocol.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				h := &handled{pause: 10 * time.Millisecond}
				stop := start(t, broker, h, protocol.opts...)
				broker.WaitStable(group, 1)
				produce(broker, 1000) // ten seconds of work
				rival := broker.Join(group, topic, protocol.opts...)
				broker.WaitStable(group, 2)
				produce(broker, 1000)
				time.Sleep(time.Second)
				rival.Leave()
				broker.WaitStable(group, 1)
				broker.WaitCommitted(group, topic, 2000)
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

// A loop hands over to another one.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		h := &handled{pause: 10 * time.Millisecond}
		stopFirst := start(t, broker, h)
		broker.WaitStable(group, 1)
		produce(broker, 1000)
		stopSecond := start(t, broker, h)
		broker.WaitStable(group, 2)
		time.Sleep(time.Second)
		if err := stopFirst(); err != nil { // in the middle of its records
			t.Errorf("loop: %v", err)
		}
		broker.WaitCommitted(group, topic, 1000)
		if err := stopSecond(); err != nil {
			t.Errorf("loop: %v", err)
		}
		h.expectOnce(t, broker)
		if n := broker.Members(group); n != 0 {
			t.Errorf("the group has %d members, want 0", n)
		}
	})
}

// A record that fails ends the loop; the next one begins with it.
func TestRecordFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		h := &handled{failAt: 7}
		stop := start(t, broker, h)
		produce(broker, 20)
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, errHandle) {
			t.Errorf("loop: %v, want %v", err, errHandle)
		}
		if got := broker.Committed(group, topic)[0]; got != 7 {
			t.Errorf("committed %d, want 7: the record that failed is not done", got)
		}
		h.failAt = 0
		stop = start(t, broker, h)
		broker.WaitCommitted(group, topic, 20)
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
		stop := start(t, broker, &handled{})
		time.Sleep(time.Minute)
		var unknown *arroyo.UnknownTopicError
		if err := stop(); !errors.As(err, &unknown) {
			t.Errorf("loop: %v, want an UnknownTopicError", err)
		}
	})
}
