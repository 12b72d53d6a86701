package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

func (c *cluster) consumer(t *testing.T, opts ...arroyo.ConsumerOption) *arroyo.Consumer {
	t.Helper()
	consumer, err := arroyo.NewConsumer(c.group, []string{c.topic}, append([]arroyo.ConsumerOption{arroyo.ClientOptions(c.kafka.ClientOptions()...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { consumer.Close() })
	return consumer
}

// until polls until an event of a kind comes.
func until[E arroyo.Event](t *testing.T, c *arroyo.Consumer) E {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ev, err := c.Poll(ctx)
		if err != nil {
			var want E
			t.Fatalf("no %T: %v", want, err)
		}
		if e, ok := ev.(E); ok {
			return e
		}
	}
}

// Records that were deleted before they were read: an error, or a reset that
// says what it skipped.
func TestOutOfRangeAfterDeletingRecords(t *testing.T) {
	c := newCluster(t, 1)
	c.produce(t, 100)
	consumer := c.consumer(t)
	epoch := until[*arroyo.Assigned](t, consumer).Epochs[0]
	until[*arroyo.Fetched](t, consumer)
	if err := consumer.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 20}); err != nil {
		t.Fatal(err)
	}
	consumer.Close()
	var delete kadm.Offsets
	delete.Add(kadm.Offset{Topic: c.topic, Partition: 0, At: 50})
	if _, err := kadm.NewClient(c.client).DeleteRecords(t.Context(), delete); err != nil {
		t.Fatal(err)
	}

	strict := c.consumer(t)
	failed := until[*arroyo.Failed](t, strict)
	var out *arroyo.OffsetOutOfRangeError
	if !failed.Fatal || !errors.As(failed.Err, &out) || out.Offset != 20 || out.Start != 50 || out.End != 100 {
		t.Errorf("Failed %+v, want offset 20 of a log from 50 to 100", failed)
	}
	strict.Close()

	lenient := c.consumer(t, arroyo.ResetOutOfRange(arroyo.StartEarliest()))
	if lost := until[*arroyo.Lost](t, lenient); !errors.As(lost.Reason, &out) {
		t.Errorf("lost because of %v", lost.Reason)
	}
	if f := until[*arroyo.Fetched](t, lenient); f.Records[0].Offset != 50 {
		t.Errorf("it goes on at %d, want 50", f.Records[0].Offset)
	}
}

// A static member that restarts keeps its partitions without a rebalance, and
// one whose ID is taken is told.
func TestStaticMembership(t *testing.T) {
	c := newCluster(t, 2)
	static := arroyo.ClientOptions(kgo.InstanceID("one"), kgo.SessionTimeout(30*time.Second))
	first := c.consumer(t, static)
	until[*arroyo.Assigned](t, first)
	first.Drain(5 * time.Second)
	until[*arroyo.Closed](t, first)
	if n := c.members(t); n != 1 {
		t.Errorf("%d members after a static one went, want 1 that is waited for", n)
	}
	second := c.consumer(t, static)
	if a := until[*arroyo.Assigned](t, second); len(a.Epochs) != 2 {
		t.Errorf("assigned %v after the restart, want both", a.Epochs)
	}
	third := c.consumer(t, static)
	go func() {
		for {
			if _, err := third.Poll(context.Background()); err != nil {
				return
			}
		}
	}()
	if failed := until[*arroyo.Failed](t, second); !failed.Fatal {
		t.Errorf("Failed %+v, want a fatal one", failed)
	}
}

// Under KIP-848 too a static member that restarts has its partitions back long
// before the session of the old one would be over.
func TestStaticMembershipKIP848(t *testing.T) {
	c := newCluster(t, 2)
	static := arroyo.ClientOptions(append(protocols["kip848"], kgo.InstanceID("one"))...)
	end := map[string]func(*arroyo.Consumer){
		"Drain": func(consumer *arroyo.Consumer) {
			consumer.Drain(5 * time.Second)
			until[*arroyo.Closed](t, consumer)
		},
		"Close": func(consumer *arroyo.Consumer) { consumer.Close() },
	}
	for name, end := range end {
		first := c.consumer(t, static)
		until[*arroyo.Assigned](t, first)
		end(first)
		if n := c.members(t); n != 1 {
			t.Errorf("%s: %d members after a static one went, want 1 that is waited for", name, n)
		}
		began := time.Now()
		second := c.consumer(t, static)
		if a := until[*arroyo.Assigned](t, second); len(a.Epochs) != 2 {
			t.Errorf("%s: assigned %v after the restart, want both", name, a.Epochs)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: assigned after %v: it has waited for the old session", name, took)
		}
		end(second)
	}
}

// Records of aborted transactions and control records: a log that ends in them
// is read to its end and committed up to there.
func TestLogThatEndsInAnAbortedTransaction(t *testing.T) {
	c := newCluster(t, 1)
	c.produce(t, 10)
	producer, err := kgo.NewClient(append(c.kafka.ClientOptions(), kgo.TransactionalID(c.group))...)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: c.topic, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	l := newLedger()
	m := c.start(t, "m", l, 0, []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())})
	eventually(t, "the end is committed, behind the marker", time.Minute, func() bool { return c.committed(t)[0] == 12 })
	m.stop(t)
	if l.len() != 10 {
		t.Errorf("%d records were processed, want 10", l.len())
	}
}

// "latest" is a number from the first member on, under every protocol.
func TestStartLatestUnderChurn(t *testing.T) {
	for protocol, opts := range protocols {
		t.Run(protocol, func(t *testing.T) {
			c := newCluster(t, 2)
			c.produce(t, 10)
			latest := []arroyo.ConsumerOption{arroyo.Start(arroyo.StartLatest()), arroyo.ClientOptions(opts...)}
			first := c.consumer(t, latest...)
			until[*arroyo.Assigned](t, first)
			go func() {
				for {
					if _, err := first.Poll(context.Background()); err != nil {
						return
					}
				}
			}()
			eventually(t, "the start is committed", time.Minute, func() bool { return sum(c.committed(t)) == 10 })
			first.Close()
			c.produce(t, 20)
			second := c.consumer(t, latest...)
			for records := 0; records < 20; {
				records += len(until[*arroyo.Fetched](t, second).Records)
			}
		})
	}
}
