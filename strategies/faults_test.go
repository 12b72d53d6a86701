package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// faultRig is a processor with dead letters.
func faultRig(t *testing.T, pipeline arroyo.Strategy[*kgo.Record], opts ...arroyo.ProcessorOption) *bench {
	broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("dead", 1))
	opts = append(opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead"}))
	return benchOn(t, broker, pipeline, opts...)
}

func (b *bench) dead() (values []string) {
	for _, r := range b.broker.Records("dead") {
		values = append(values, string(r.Value))
	}
	return values
}

// marked is a task: values that begin with "drop" or "bad" are dropped or
// invalid.
func marked(_ context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
	switch v := value(m); v[0] {
	case 'd':
		return "", arroyo.Drop
	case 'b':
		return "", arroyo.Invalid(errors.New(v))
	default:
		return v, nil
	}
}

func rowsInto(batches *list[int]) func(context.Context, []arroyo.Message[string]) error {
	return func(_ context.Context, rows []arroyo.Message[string]) error {
		batches.add(len(rows))
		return nil
	}
}

// Faults that strategies of this kind are known to have had elsewhere, and what
// is right. Those that have a test elsewhere:
//
//   - A batch's timer runs from the step's start on: TestBatchWaitsSinceItsFirstMessage.
//   - A health check says nothing of a member without partitions, and goes on
//     while the pipeline is stuck: TestHealthcheckOfAStandby, TestHealthcheckOfAStuckPipeline.
//   - State is kept for partitions that are gone: the check "fenced" of the
//     conformance suite, TestHealthcheckForgets, TestIntervalForgets.
//   - A step waits for the end without serving the next step, closes by doing
//     something else, calls a step that is closed, loses the result that it
//     holds: the checks "slow next step", "delivery" and "abandoned".
//   - A full next step makes a message disappear, or come twice or out of
//     order, or the whole pipeline fail: the check "busy next step".
//   - An outgoing record shares its headers with the input: TestOutgoing.
//   - A record counts as written once the client has it, and the end of the run
//     does not wait for what is on its way: TestProduceWaitsForAcks.
//   - One more than allowed is at work: TestPoolScalesWithItsNumber,
//     TestI9ProduceIsBounded.
//   - A result that is handed on late lets those behind it overtake, or makes the
//     commit go back: TestI4PoolOrder, TestPoolLateResult.
func TestKnownFaults(t *testing.T) {
	for _, tt := range []struct {
		fault string
		right func(t *testing.T)
	}{
		{"the offset of a dropped message overtakes a batch that is not processed", droppedBehindABatch},
		{"the offset of an invalid message overtakes a batch that is not processed", invalidBehindABatch},
		{"offsets of filtered messages are not committed while nothing else comes", filteredAtTheEnd},
		{"a second filter forgets what the first one dropped", twoFilters},
		{"a message that becomes nothing is not committed", nothingLeft},
		{"a reduction of nothing is not committed", reducedToNothing},
		{"a task's timeout error counts as done at the end of the run", timeoutAtTheEnd},
		{"a message that turns out to be invalid at the end of the run is forgotten", invalidAtTheEnd},
		{"a child that is invalid is invalid again and again, or takes its siblings along", invalidChild},
		{"an invalid member makes a whole batch invalid", invalidMember},
		{"only the last message of a batch has an offset", batchOverPartitions},
		{"while nothing can be fetched, steps get no time", batchWhileFetchesFail},
	} {
		t.Run(tt.fault, func(t *testing.T) { synctest.Test(t, tt.right) })
	}
}

func droppedBehindABatch(t *testing.T) {
	var batches list[int]
	b := faultRig(t, strategies.RunTask(marked, strategies.ForEachBatch(10, time.Hour, rowsInto(&batches))))
	b.put(0, "a", "b is bad", "drop", "drop")
	time.Sleep(10 * time.Second)
	b.expectCommitted(0, 0) // "a" waits in a batch
	b.stopsWithin(time.Second)
	b.expectCommitted(0, 4)
}

func invalidBehindABatch(t *testing.T) {
	var batches list[int]
	b := faultRig(t, strategies.RunTask(marked, strategies.Reduce(10, time.Hour, empty,
		func(values []string, m arroyo.Message[string]) ([]string, error) {
			return append(values, m.Payload), nil
		},
		strategies.ForEach(func(_ context.Context, m arroyo.Message[[]string]) error {
			batches.add(len(m.Payload))
			return nil
		}))))
	b.put(0, "a", "c", "bad", "bad too")
	time.Sleep(10 * time.Second)
	b.expectCommitted(0, 0)
	if diff := cmp.Diff([]string{"bad", "bad too"}, b.dead()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	b.stopsWithin(time.Second)
	b.expectCommitted(0, 4)
	if diff := cmp.Diff([]int{2}, batches.all()); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

func filteredAtTheEnd(t *testing.T) {
	b := faultRig(t, strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool { return value(m) == "a" }, strategies.Noop[*kgo.Record]()))
	b.put(0, "a", "x", "y")
	b.settle(3)
	b.put(0, "z")
	b.settle(4)
}

func twoFilters(t *testing.T) {
	not := func(unwanted string) func(arroyo.Message[*kgo.Record]) bool {
		return func(m arroyo.Message[*kgo.Record]) bool { return value(m) != unwanted }
	}
	b := faultRig(t, strategies.Filter(not("x"), strategies.Filter(not("y"), strategies.Noop[*kgo.Record]())))
	b.put(0, "x", "y", "x")
	b.settle(3)
}

func nothingLeft(t *testing.T) {
	b := faultRig(t, strategies.Unfold(words, strategies.Noop[string]()))
	b.put(0, "a b", " ", " ")
	b.settle(3)
}

func reducedToNothing(t *testing.T) {
	b := faultRig(t, strategies.Accumulate(time.Second, newTally, strategies.Noop[string]()))
	b.put(0, " ", " ")
	b.settle(2)
}

func timeoutAtTheEnd(t *testing.T) {
	for _, timeout := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		b := faultRig(t, strategies.ForEachBatch(10, time.Hour, func(context.Context, []arroyo.Message[*kgo.Record]) error {
			return fmt.Errorf("insert: %w", timeout)
		}))
		b.put(0, "a", "b")
		time.Sleep(time.Second)
		if err := b.stop(); !errors.Is(err, timeout) {
			t.Errorf("Run: %v, want %v", err, timeout)
		}
		b.expectCommitted(0, 0)
	}
}

func invalidAtTheEnd(t *testing.T) {
	b := faultRig(t, strategies.ForEachBatch(10, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		return arroyo.Invalid(errors.New("no such table"))
	}))
	b.put(0, "a", "b")
	time.Sleep(time.Second)
	b.stopsWithin(time.Second)
	if diff := cmp.Diff([]string{"a", "b"}, b.dead()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	b.expectCommitted(0, 2)
}

func invalidChild(t *testing.T) {
	var got list[string]
	b := faultRig(t, strategies.Unfold(words, strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
		got.add(m.Payload)
		if m.Payload == "bad" {
			return arroyo.Invalid(errors.New("bad"))
		}
		return nil
	})))
	b.put(0, "a bad c", "d")
	b.settle(2)
	if diff := cmp.Diff([]string{"a", "bad", "c", "d"}, got.all()); diff != "" {
		t.Errorf("children (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a bad c"}, b.dead()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	b.stopsWithin(time.Second)
}

func invalidMember(t *testing.T) {
	b := faultRig(t, strategies.ForEachBatch(3, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		rows[1].Reject(errors.New("duplicate key"))
		return nil
	}))
	b.put(0, "a", "b", "c")
	b.settle(3)
	if diff := cmp.Diff([]string{"b"}, b.dead()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	b.stopsWithin(time.Second)
}

func batchOverPartitions(t *testing.T) {
	var batches list[int]
	b := newBench(t, 3, strategies.RunTask(text, strategies.ForEachBatch(6, time.Hour, rowsInto(&batches))))
	for p := range int32(3) {
		b.put(p, "a", "b")
	}
	b.settle(6)
	if diff := cmp.Diff([]int{6}, batches.all()); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	b.stopsWithin(time.Second)
}

func batchWhileFetchesFail(t *testing.T) {
	var batches list[int]
	b := faultRig(t, strategies.RunTask(marked, strategies.ForEachBatch(100, 10*time.Second, rowsInto(&batches))))
	b.broker.Produce("events", "1", "2", "3")
	time.Sleep(5 * time.Second)
	fault := b.broker.Disconnect(kmsg.Fetch)
	time.Sleep(6 * time.Second)
	synctest.Wait()
	if got := batches.all(); len(got) != 1 || got[0] != 3 || fault.Hits() == 0 {
		t.Errorf("batches of %v after %d failed fetches, want one of 3: its ten seconds are over", got, fault.Hits())
	}
	b.settle(3)
	b.stopsWithin(10 * time.Second)
}
