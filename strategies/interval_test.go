package strategies_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// spanRig feeds records by their seconds after noon.
type spanRig struct {
	*laneRig
	end *collect[strategies.Span]
}

func newSpanRig(t *testing.T, atLeast time.Duration) *spanRig {
	end := &collect[strategies.Span]{}
	return &spanRig{onLane(t, strategies.Interval(atLeast, end, strategies.Name("interval"))), end}
}

func (r *spanRig) tick(e arroyo.Epoch, seconds ...int) {
	records := make([]*kgo.Record, len(seconds))
	for i, s := range seconds {
		records[i] = &kgo.Record{Offset: r.next[e], Timestamp: noon.Add(time.Duration(s) * time.Second)}
		r.next[e]++
	}
	r.Feed(e, records...)
	synctest.Wait()
}

// spans are those that were handed on, as "0: 3-5 10s-12s": partition, offsets,
// seconds.
func (r *spanRig) spans() string {
	var texts []string
	for _, s := range r.end.payloads() {
		texts = append(texts, fmt.Sprintf("%d: %d-%d %v-%v", s.Partition.Number, s.First, s.Next, s.Start.Sub(noon), s.End.Sub(noon)))
	}
	return strings.Join(texts, ", ")
}

func TestInterval(t *testing.T) {
	for _, tt := range []struct {
		name    string
		atLeast time.Duration
		seconds []int
		want    string
	}{
		{"each record", 0, []int{10, 11, 15}, "0: 0-1 10s-11s, 0: 1-2 11s-15s"},
		{"one record", 0, []int{10}, ""},
		{"equal timestamps", 0, []int{10, 10, 10, 12, 12, 13}, "0: 0-3 10s-12s, 0: 3-5 12s-13s"},
		{"out of order", 0, []int{10, 12, 11, 12, 9, 13}, "0: 0-1 10s-12s, 0: 1-5 12s-13s"},
		{"at least 5 s", 5 * time.Second, []int{10, 12, 15, 16, 19, 20, 30}, "0: 0-2 10s-15s, 0: 2-5 15s-20s, 0: 5-6 20s-30s"},
		{"at least 5 s, out of order", 5 * time.Second, []int{10, 16, 11, 20, 15, 21}, "0: 0-1 10s-16s, 0: 1-5 16s-21s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSpanRig(t, tt.atLeast)
				r.tick(r.assign(0), tt.seconds...)
				if got := r.spans(); got != tt.want {
					t.Errorf("spans\n%s, want\n%s", got, tt.want)
				}
				r.finish()
			})
		})
	}
}

// A span stands for its records, without the one that ends it: that is settled
// with the span that it begins. So the watermark is where the open span begins,
// and there the next owner goes on.
func TestIntervalSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSpanRig(t, 5*time.Second)
		e := r.assign(0)
		r.tick(e, 10, 12, 15, 16, 20, 21)
		if got := r.verdicts(); len(got) != 0 {
			t.Errorf("verdicts %v before the spans have one", got)
		}
		spans := r.end.got.all()
		spans[1].Ack()
		if w, _ := r.Watermark(e); w != 0 {
			t.Errorf("the watermark is %d, want 0: the first span is not settled", w)
		}
		spans[0].Ack()
		if w, _ := r.Watermark(e); w != 4 {
			t.Errorf("the watermark is %d, want 4", w)
		}
		r.drain(e)
		want := []string{"0/2 acked", "0/3 acked", "0/0 acked", "0/1 acked", "0/4 returned", "0/5 returned"}
		if diff := gocmp.Diff(want, r.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if w, _ := r.Watermark(e); w != 4 {
			t.Errorf("the watermark is %d, want 4: the next owner begins with the span that was open", w)
		}
		r.finish()
	})
}

// Each partition has spans of its own, and each epoch begins anew.
func TestIntervalOfSeveralPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSpanRig(t, 0)
		a, b := r.assign(0), r.assign(1)
		r.tick(a, 10)
		r.tick(b, 100)
		r.tick(a, 12)
		r.tick(b, 105)
		r.drain(a)
		r.tick(b, 107)
		a = r.assign(0)
		r.next[a] = 1 // where the watermark was
		r.tick(a, 12, 20)
		r.Fence(b)
		b = r.assign(1)
		r.next[b] = 1
		r.tick(b, 105, 107)
		want := "0: 0-1 10s-12s, 1: 0-1 1m40s-1m45s, 1: 1-2 1m45s-1m47s, 0: 1-2 12s-20s, 1: 1-2 1m45s-1m47s"
		if got := r.spans(); got != want {
			t.Errorf("spans\n%s, want\n%s", got, want)
		}
		r.finish()
	})
}

// At the bound a span ends at the last record, so that all but one record of a
// partition can be settled; time does not run backwards.
func TestIntervalAtTheBound(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds []int
		want    string
	}{
		{"in order", []int{10, 11, 12}, "0: 0-2 10s-12s, 0: 2-3 12s-1m52s"},
		{"out of order", []int{10, 12, 7}, "0: 0-2 10s-10s, 0: 2-3 10s-1m52s"},
		{"one record", []int{10}, "0: 0-1 10s-1m52s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newSpanRig(t, time.Minute)
				e := r.assign(0)
				r.tick(e, tt.seconds...)
				r.FlushAtBound()
				synctest.Wait()
				r.end.ackAll()
				if n := r.Unsettled(e); n != 1 {
					t.Errorf("%d records are not settled, want 1", n)
				}
				r.tick(e, 112)
				if got := r.spans(); got != tt.want {
					t.Errorf("spans\n%s, want\n%s", got, tt.want)
				}
				r.finish()
			})
		})
	}
}

// A span of an epoch that is over is not handed on, whatever comes first.
func TestIntervalAndFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSpanRig(t, time.Minute)
		e := r.assign(0)
		r.tick(e, 10, 11, 12)
		r.Fence(e)
		r.FlushAtBound()
		synctest.Wait()
		if got := r.spans(); got != "" {
			t.Errorf("spans %s, want none", got)
		}
		r.finish()
	})
}

// A flush that is about other partitions leaves a span as it is.
func TestIntervalFlushOfSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSpanRig(t, time.Minute)
		a, b := r.assign(0), r.assign(1)
		r.tick(a, 10, 11, 12)
		r.tick(b, 10, 11, 12)
		r.FlushAtBound(a)
		synctest.Wait()
		if got, want := r.spans(), "0: 0-2 10s-12s"; got != want {
			t.Errorf("spans %s, want %s", got, want)
		}
		r.finish()
	})
}

// A processor whose bound is smaller than a span goes on. What is less than the
// bound at the end of the log waits for the end of its span, as it should.
func TestIntervalInARunAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spans list[strategies.Span]
		b := newBench(t, 2, strategies.Interval(time.Hour, into(&spans)), arroyo.MaxInFlight(200))
		records := make([]*kgo.Record, 2000)
		for i := range records {
			records[i] = &kgo.Record{Topic: "events", Partition: int32(i % 2), Timestamp: noon.Add(time.Duration(i) * time.Second)}
		}
		b.broker.ProduceRecords(records...)
		b.settle(2000 - 200)
		b.stopsWithin(time.Second)
		expectCover(t, spans.all(), b.broker.Committed("g", "events"))
		if b.processor.Status().BoundFlushes == 0 {
			t.Error("the bound was never met")
		}
	})
}

func TestIntervalWithoutRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[strategies.Span]{}
		r := onLane(t, detach{strategies.Interval(0, end, strategies.Name("interval"))})
		r.feed(r.assign(0), "x")
		var step *arroyo.StepError
		if err := r.Finish(); !errors.As(err, &step) || step.Step != "interval" || !strings.Contains(err.Error(), "has no record") {
			t.Errorf("the run ended with %v", err)
		}
	})
}

// detach hands on messages that stand for nothing.
type detach struct{ next arroyo.Strategy[*kgo.Record] }

func (d detach) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	arroyo.AckAll(msgs)
	return d.next.Submit(ctx, make([]arroyo.Message[*kgo.Record], len(msgs)))
}
func (d detach) Flush(ctx context.Context) error { return d.next.Flush(ctx) }
func (d detach) Close(ctx context.Context) error { return d.next.Close(ctx) }

// expectCover checks that the spans of each partition follow one another, from
// its first record to what is committed, without gap and without overlap.
func expectCover(t *testing.T, spans []strategies.Span, committed map[int32]int64) {
	t.Helper()
	byPartition := make(map[int32][]strategies.Span)
	for _, s := range spans {
		byPartition[s.Partition.Number] = append(byPartition[s.Partition.Number], s)
	}
	for p, offset := range committed {
		at := strategies.Span{}
		for i, s := range byPartition[p] {
			if s.First != at.Next {
				t.Errorf("partition %d: a span begins at %d, and the one before ended at %d", p, s.First, at.Next)
			}
			if i > 0 && !s.Start.Equal(at.End) {
				t.Errorf("partition %d: a span begins at %v, and the one before ended at %v", p, s.Start, at.End)
			}
			at = s
		}
		if at.Next != offset {
			t.Errorf("partition %d: the last span ends at %d, and %d is committed", p, at.Next, offset)
		}
	}
}

// Whatever members come and go, the spans of a partition leave no gap and, as
// long as all goes in good order, do not overlap. If members are cut off, what
// was not committed is made again, and there is still no gap.
func TestIntervalsCoverAllOffsets(t *testing.T) {
	for seed := range uint64(6) {
		for _, cut := range []bool{false, true} {
			for _, partitioned := range []bool{false, true} {
				t.Run(fmt.Sprintf("seed %d, cut %v, partitioned %v", seed, cut, partitioned), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { testIntervalsCover(t, rand.New(rand.NewPCG(seed, 0)), cut, partitioned) })
				})
			}
		}
	}
}

func testIntervalsCover(t *testing.T, rng *rand.Rand, cut, partitioned bool) {
	const partitions = 3
	var spans list[strategies.Span]
	atLeast := time.Duration(rng.IntN(4)) * time.Second
	pipeline := func() arroyo.Strategy[*kgo.Record] {
		return strategies.Interval(atLeast,
			strategies.ForEach(func(ctx context.Context, m arroyo.Message[strategies.Span]) error {
				spans.add(m.Payload)
				return nil
			}))
	}
	broker := memkafka.New(t, memkafka.Topic("events", partitions))
	join := func() *bench {
		if !partitioned {
			return benchOn(t, broker, pipeline())
		}
		return partitionedOn(t, broker, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return pipeline(), nil
		})
	}
	members := []*bench{join()}
	at := noon
	tick := func() {
		for range rng.IntN(30) {
			at = at.Add(time.Duration(rng.IntN(5)-1) * time.Second) // sometimes equal, sometimes out of order
			broker.ProduceRecords(&kgo.Record{Topic: "events", Partition: rng.Int32N(partitions), Timestamp: at})
		}
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
	}
	for range 12 {
		tick()
		switch n := len(members); {
		case n < 3 && rng.IntN(2) == 0:
			members = append(members, join())
		case n > 1 && rng.IntN(2) == 0:
			i := rng.IntN(n)
			members[i].stopsWithin(5 * time.Second)
			members = slices.Delete(members, i, i+1)
			broker.WaitStable("g", n-1)
		case cut && rng.IntN(3) == 0:
			host := members[rng.IntN(n)].host
			host.Cut()
			time.Sleep(time.Minute) // its session is over
			host.Heal()
			broker.WaitStable("g", n)
		}
	}
	tick()
	broker.WaitStable("g", len(members))
	time.Sleep(5 * time.Second)
	for _, m := range members {
		m.stopsWithin(5 * time.Second)
	}
	committed := broker.Committed("g", "events")
	all := spans.all()
	if !cut {
		expectCover(t, all, committed)
		return
	}
	expectNoGap(t, all, committed)
}

// partitionedOn is benchOn with a pipeline for each partition.
func partitionedOn(t *testing.T, broker *memkafka.Broker, pipeline func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error)) *bench {
	t.Helper()
	host := broker.Host()
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(host.ClientOptions()...))
	if err != nil {
		t.Fatal(err)
	}
	processor, err := arroyo.NewPartitionedProcessor(consumer, pipeline, arroyo.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	members := broker.Members("g")
	b := &bench{rig{broker, memkafka.Start(t, processor.Run)}, processor, host, t}
	broker.WaitStable("g", members+1)
	return b
}

// expectNoGap checks that every offset below what is committed is in a span.
func expectNoGap(t *testing.T, spans []strategies.Span, committed map[int32]int64) {
	t.Helper()
	slices.SortFunc(spans, func(a, b strategies.Span) int {
		return cmp.Or(cmp.Compare(a.Partition.Number, b.Partition.Number), cmp.Compare(a.First, b.First))
	})
	for p, offset := range committed {
		next := int64(0)
		for _, s := range spans {
			if s.Partition.Number == p && s.First <= next {
				next = max(next, s.Next)
			}
		}
		if next < offset {
			t.Errorf("partition %d: spans leave a gap at %d, and %d is committed", p, next, offset)
		}
	}
}
