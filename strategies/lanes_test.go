package strategies_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// laneRig runs a pipeline without a broker, in a bubble.
type laneRig struct {
	*arroyo.Rig
	t    *testing.T
	next map[arroyo.Epoch]int64
}

func onLane(t *testing.T, pipeline arroyo.Strategy[*kgo.Record]) *laneRig {
	r := &laneRig{arroyo.NewRig(pipeline), t, make(map[arroyo.Epoch]int64)}
	r.Watch()
	return r
}

func (r *laneRig) assign(partition int32) arroyo.Epoch {
	return r.Assign(arroyo.Partition{Topic: "events", Number: partition})
}

// feed feeds records with these values, of the next offsets, and waits until
// nothing goes on.
func (r *laneRig) feed(e arroyo.Epoch, values ...string) {
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: e.Topic, Partition: e.Number, Offset: r.next[e], Value: []byte(v)}
		r.next[e]++
	}
	r.Feed(e, records...)
	synctest.Wait()
}

func (r *laneRig) drain(epochs ...arroyo.Epoch) {
	r.Drain(epochs...)
	synctest.Wait()
}

// verdicts returns the verdicts so far, as "0/3 acked": partition, offset, kind.
func (r *laneRig) verdicts() (texts []string) {
	for _, v := range r.Verdicts() {
		texts = append(texts, fmt.Sprintf("%d/%d %s", v.Epoch.Number, v.Record.Offset, v.Kind))
	}
	return texts
}

// finish ends the run in good order.
func (r *laneRig) finish() {
	r.t.Helper()
	if err := r.Finish(); err != nil {
		r.t.Errorf("the run ended with %v", err)
	}
}

// wait lets time pass.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// asNumber is a task for values that are numbers.
func asNumber(_ context.Context, m arroyo.Message[*kgo.Record]) (n int, err error) {
	_, err = fmt.Sscan(string(m.Payload.Value), &n)
	return n, err
}

// collect is a pipeline's end that keeps the messages as they come, without a
// verdict.
type collect[T any] struct {
	got     list[arroyo.Message[T]]
	flushes list[bool] // whether at the bound
}

func (c *collect[T]) Submit(_ context.Context, msgs []arroyo.Message[T]) error {
	for _, m := range msgs {
		c.got.add(m)
	}
	return nil
}

func (c *collect[T]) Flush(ctx context.Context) error {
	c.flushes.add(arroyo.AtBound(ctx))
	return nil
}

func (c *collect[T]) Close(context.Context) error { return nil }

// payloads returns what came so far.
func (c *collect[T]) payloads() (ps []T) {
	for _, m := range c.got.all() {
		ps = append(ps, m.Payload)
	}
	return ps
}

func (c *collect[T]) ackAll() { arroyo.AckAll(c.got.all()) }
