package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// The outputs of a partition that is lost do not take those of others with them,
// which are in the same buffers of the client.
func TestProduceOfALostPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("out", 1))
		client := newClient(t, broker)
		defer client.Close()
		p := newProducePipe(t, client)
		lost, kept := p.assign(0), p.assign(1)
		fault := broker.Fail(kmsg.Produce, kerr.NotEnoughReplicas)
		for i := range 50 {
			p.feed(lost, fmt.Sprint("lost ", i))
			p.feed(kept, fmt.Sprint("kept ", i))
		}
		fault.Wait(1)
		p.Fence(lost)
		time.Sleep(5 * time.Second)
		fault.Heal()
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		var got []string
		for _, r := range broker.Records("out") {
			if string(r.Value[:4]) == "kept" {
				got = append(got, string(r.Value))
			}
		}
		want := make([]string, 50)
		for i := range want {
			want[i] = fmt.Sprint("kept ", i)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("written of the partition that was kept (-want +got):\n%s", diff)
		}
		if w, _ := p.Watermark(kept); w != 50 {
			t.Errorf("the watermark is %d, want 50", w)
		}
	})
}

// What waits for room when its partition is lost is not produced any more, and
// does not hold the lane: others go on.
func TestProduceWaitsAndIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.MaxBufferedRecords(2))
		defer client.Close()
		p := newPipe(t, func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Route(func(m records) string { return string(m.Payload.Value[:1]) }, strategies.Branches[*kgo.Record]{
				"p": strategies.Produce(client, copied),
				"n": strategies.Noop[*kgo.Record](),
			})
		})
		fault := broker.Swallow(kmsg.Produce)
		lost, kept := p.assign(0), p.assign(1)
		p.feed(lost, "p0", "p1", "p2", "p3")
		synctest.Wait()
		p.feed(kept, "n0") // behind the Submit that waits
		p.Fence(lost)
		synctest.Wait()
		if n := p.Unsettled(kept); n != 0 {
			t.Errorf("the lane is held up by a partition that is lost: %d records of another one wait", n)
		}
		fault.Heal()
		p.feed(kept, "p4")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		var got []string
		for _, r := range broker.Records("out") {
			got = append(got, string(r.Value))
		}
		if diff := cmp.Diff([]string{"p0", "p1", "p4"}, got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// What reaches the step when its partition is already being given up is not
// begun: the next owner produces it.
func TestProduceBeginsNothingInADrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		blocks := make(chan struct{})
		p := newPipe(t, func(arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(100, strategies.Produce(produceFunc(func(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
				<-blocks
				a.Produce(ctx, r, promise)
			}), copied))
		})
		e := p.assign(0)
		for _, value := range []string{"a", "b", "c"} {
			p.feed(e, value)
		}
		synctest.Wait()
		p.Drain(e)
		synctest.Wait()
		close(blocks)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a"}, a.values()); diff != "" {
			t.Errorf("produced (-want +got):\n%s", diff)
		}
		a.all()[0].ack(nil)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a acked", "b returned", "c returned"}, p.verdicts(e)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		p.finish()
	})
}

// I4: records with the same key are written in their order, whatever the brokers
// say meanwhile.
func TestI4ProduceKeepsTheOrderOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("out", 3))
		client := newClient(t, broker)
		defer client.Close()
		p := newProducePipe(t, client)
		e := p.assign(0)
		want := make(map[string][]string)
		for i := range 300 {
			if i%50 == 0 {
				broker.Fail(kmsg.Produce, kerr.NotLeaderForPartition, memkafka.OnPartitions(int32(i/50%3)), memkafka.Times(2))
				broker.Disconnect(kmsg.Produce, memkafka.Applied(), memkafka.Times(1))
			}
			key, value := fmt.Sprint("k", i%10), fmt.Sprint(i)
			p.feed(e, key+"="+value)
			want[key] = append(want[key], value)
			time.Sleep(10 * time.Millisecond)
		}
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		got := make(map[string][]string)
		for _, r := range broker.Records("out") {
			got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("written of each key, in this order (-want +got):\n%s", diff)
		}
	})
}

// What waited for room is produced before what comes when there is room again.
func TestI4ProduceIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.MaxBufferedRecords(2))
		defer client.Close()
		gate := make(chan struct{})
		rig := arroyo.NewRig(strategies.Route(func(m records) string { return value(m)[:1] }, strategies.Branches[*kgo.Record]{
			"b": strategies.ForEach(func(context.Context, records) error { <-gate; return nil }),
			"p": strategies.Produce(client, copied),
		}))
		offset := int64(0)
		e := rig.Assign(arroyo.Partition{Topic: "events"})
		feed := func(values ...string) {
			var rs []*kgo.Record
			for _, v := range values {
				rs = append(rs, &kgo.Record{Offset: offset, Value: []byte(v)})
				offset++
			}
			rig.Feed(e, rs...)
			synctest.Wait()
		}
		broker.Delay(kmsg.Produce, 5*time.Second, memkafka.Times(1))
		feed("p0", "p1", "p2") // the last one waits
		rig.Drain(rig.Assign(arroyo.Partition{Topic: "events", Number: 1}))
		synctest.Wait()             // the lane is wanted, so Submit has returned
		feed("b", "p3")             // the first of these holds the lane
		time.Sleep(6 * time.Second) // until there is room
		close(gate)
		if err := rig.Settle(); err != nil {
			t.Fatal(err)
		}
		if err := rig.Finish(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range broker.Records("out") {
			got = append(got, string(r.Value))
		}
		if diff := cmp.Diff([]string{"p0", "p1", "p2", "p3"}, got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// A record is produced whatever context outgoing has given it: kgo fails all
// that is buffered for a partition when the context of one record ends.
func TestProduceIgnoresTheEndOfARecordsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type traceKey struct{}
		var a acks
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), traceKey{}, "trace"))
		p := newPipe(t, func(arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Produce(&a, func(_ context.Context, m records) (*kgo.Record, error) {
				r := strategies.Outgoing(m, "out", nil)
				r.Context = ctx
				return r, nil
			})
		})
		p.feed(p.assign(0), "a")
		synctest.Wait()
		cancel()
		got := a.all()[0].Record.Context
		if got.Err() != nil || got.Value(traceKey{}) != "trace" {
			t.Errorf("the record's context has ended (%v), or lost its values", got.Err())
		}
		a.all()[0].ack(nil)
		p.finish()
	})
}

// Of two failures the first one ends the run.
func TestProduceFirstFailureCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		p := newProducePipe(t, &a)
		p.feed(p.assign(0), "a", "b")
		synctest.Wait()
		for i, err := range []error{kerr.TopicAuthorizationFailed, kerr.InvalidTopicException} {
			a.all()[i].ack(err)
		}
		<-p.Done()
		if at, ok := errors.AsType[*arroyo.StepError](p.Err()); !ok || at.Offset != 0 || !errors.Is(at, kerr.TopicAuthorizationFailed) {
			t.Errorf("the run ended with %v, want the failure at offset 0", p.Err())
		}
	})
}

// While records are on their way it is this step that Status names, and not when
// they have arrived.
func TestProduceIsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		b := newBench(t, 1, strategies.Route(value, strategies.Branches[*kgo.Record]{
			"p": strategies.Produce(&a, copied, strategies.Name("produce")),
			"b": strategies.ForEachBatch(10, time.Hour, func(context.Context, []records) error { return nil }, strategies.Name("batch")),
		}, strategies.Name("route")))
		step := func() string { return b.processor.Status().Partitions[0].Step }
		b.broker.Produce("events", "p")
		time.Sleep(time.Second)
		b.broker.Produce("events", "b")
		time.Sleep(time.Second)
		if got := step(); got != "route/p/produce" {
			t.Errorf("the oldest record is in %q, want route/p/produce", got)
		}
		sent := a.all()
		sent[0].ack(nil)
		synctest.Wait()
		if got := step(); got != "route/b/batch" {
			t.Errorf("the oldest record is in %q, want route/b/batch", got)
		}
		b.stopsWithin(time.Second)
	})
}
