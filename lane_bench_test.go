package arroyo_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// hotPath is a pipeline that the benchmark drives, and what it has to do.
type hotPath struct {
	name  string
	build func(sum *uint64) arroyo.Strategy[*kgo.Record]
	sum   func(v uint64) uint64 // what a record adds to sum
}

func hotPaths() []hotPath {
	var (
		_, all, _ = functions(nil)
		even      = func(m arroyo.Message[uint64]) bool { return m.Payload%2 == 0 }
		each      = func(sum *uint64) arroyo.Strategy[uint64] {
			_, _, f := functions(sum)
			return strategies.ForEach(f)
		}
		whole = func(v uint64) uint64 { return v }
		half  = func(v uint64) uint64 { return v * ((v + 1) % 2) }
	)
	return []hotPath{
		{
			name:  "Noop",
			build: func(*uint64) arroyo.Strategy[*kgo.Record] { return strategies.Noop[*kgo.Record]() },
			sum:   func(uint64) uint64 { return 0 },
		},
		{
			name: "RunTask-Filter-Noop",
			build: func(sum *uint64) arroyo.Strategy[*kgo.Record] {
				return strategies.RunTask(decode, strategies.Filter(func(m arroyo.Message[uint64]) bool {
					*sum += m.Payload
					return true
				}, strategies.Noop[uint64]()))
			},
			sum: whole,
		},
		{
			name: "RunTask-Filter-ForEach",
			build: func(sum *uint64) arroyo.Strategy[*kgo.Record] {
				return strategies.RunTask(decode, strategies.Filter(all, each(sum)))
			},
			sum: whole,
		},
		{
			name: "RunTask-FilterHalf-ForEach",
			build: func(sum *uint64) arroyo.Strategy[*kgo.Record] {
				return strategies.RunTask(decode, strategies.Filter(even, each(sum)))
			},
			sum: half,
		},
		{
			name: "RunTask-Filter-ForEachBatch1000",
			build: func(sum *uint64) arroyo.Strategy[*kgo.Record] {
				return strategies.RunTask(decode, strategies.Filter(all,
					strategies.ForEachBatch(1000, time.Hour, func(_ context.Context, rows []arroyo.Message[uint64]) error {
						for i := range rows {
							*sum += rows[i].Payload
						}
						return nil
					})))
			},
			sum: whole,
		},
		{
			name: "RunTask-Batch1000-Unbatch-ForEach",
			build: func(sum *uint64) arroyo.Strategy[*kgo.Record] {
				return strategies.RunTask(decode, strategies.Batch(1000, time.Hour, strategies.Unbatch(each(sum))))
			},
			sum: whole,
		},
	}
}

// functions are what a user writes.
func functions(sum *uint64) (
	task func(context.Context, arroyo.Message[*kgo.Record]) (uint64, error),
	keep func(arroyo.Message[uint64]) bool,
	each func(context.Context, arroyo.Message[uint64]) error,
) {
	return decode,
		func(arroyo.Message[uint64]) bool { return true },
		func(_ context.Context, m arroyo.Message[uint64]) error {
			*sum += m.Payload
			return nil
		}
}

// call calls functions for each record.
//
//go:noinline
func call(
	ctx context.Context,
	records []*kgo.Record,
	task func(context.Context, arroyo.Message[*kgo.Record]) (uint64, error),
	keep func(arroyo.Message[uint64]) bool,
	each func(context.Context, arroyo.Message[uint64]) error,
) error {
	for _, r := range records {
		m := arroyo.Message[*kgo.Record]{Payload: r}
		v, err := task(ctx, m)
		if err != nil {
			return err
		}
		if out := arroyo.With(m, v); keep(out) {
			if err := each(ctx, out); err != nil {
				return err
			}
		}
	}
	return nil
}

func decode(_ context.Context, m arroyo.Message[*kgo.Record]) (uint64, error) {
	return binary.BigEndian.Uint64(m.Payload.Value), nil
}

// BenchmarkHotPath is what a record costs from the moment it was fetched until
// the watermark is past it, without a broker and without kgo. The run loop and
// the lane take turns, so that the time is that of both. To compare with, Bare
// is a plain loop over the same records, and Calls one that calls the three
// functions of RunTask-Filter-ForEach as a step does: with a context and
// messages. What is beyond it is Arroyo's. With -cpu 1 it is the work alone that
// is measured; with more, the system also wakes a thread for each turn, which a
// run that is busy does not have to.
func BenchmarkHotPath(b *testing.B) {
	b.Run("Bare", func(b *testing.B) {
		records := fetch()
		var sum uint64
		n := 0
		for b.Loop() {
			for _, r := range records {
				sum += binary.BigEndian.Uint64(r.Value)
			}
			n += len(records)
		}
		if sum == 0 {
			b.Fatal("nothing was summed")
		}
		b.ReportMetric(0, "ns/op") // an op is a fetch
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
	})
	b.Run("Calls", func(b *testing.B) {
		records := fetch()
		var sum uint64
		task, keep, each := functions(&sum)
		n := 0
		for b.Loop() {
			if err := call(b.Context(), records, task, keep, each); err != nil {
				b.Fatal(err)
			}
			n += len(records)
		}
		if sum == 0 {
			b.Fatal("nothing was summed")
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
	})
	for _, path := range hotPaths() {
		b.Run(path.name, func(b *testing.B) {
			records := fetch()
			var sum uint64
			rig := newBenchRig(path.build(&sum))
			process(b, rig, records) // the lane learns how much to submit at once
			sum = 0
			n, fetches := 0, 0
			before := readMem()
			b.ReportAllocs()
			for b.Loop() {
				process(b, rig, records)
				n += len(records)
				fetches++
			}
			after := readMem()
			if err := rig.Finish(); err != nil {
				b.Fatal(err)
			}
			if want := sumOf(records, path.sum) * uint64(fetches); sum != want {
				b.Fatalf("the pipeline's sum is %d, not %d", sum, want)
			}
			b.ReportMetric(0, "ns/op") // an op is a fetch
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/record")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(n), "B/record")
		})
	}
}

// TestHotPathBudget fails if a step begins to allocate for each record.
func TestHotPathBudget(t *testing.T) {
	const (
		rounds = 20
		most   = 0.05 // allocations a record: what remains is for each span, chunk and batch
	)
	for _, path := range hotPaths() {
		t.Run(path.name, func(t *testing.T) {
			records := fetch()
			var sum uint64
			rig := newBenchRig(path.build(&sum))
			process(t, rig, records)
			sum = 0
			before := readMem()
			for range rounds {
				process(t, rig, records)
			}
			after := readMem()
			if err := rig.Finish(); err != nil {
				t.Fatal(err)
			}
			if want := sumOf(records, path.sum) * rounds; sum != want {
				t.Errorf("the pipeline's sum is %d, not %d", sum, want)
			}
			got := float64(after.Mallocs-before.Mallocs) / float64(rounds*len(records))
			if got > most {
				t.Errorf("%.3f allocations a record, more than %v: profile BenchmarkHotPath/%s with -memprofile", got, most, path.name)
			}
		})
	}
}

// benchRig is a pipeline with one partition.
type benchRig struct {
	*arroyo.Rig
	epoch arroyo.Epoch
}

func newBenchRig(pipeline arroyo.Strategy[*kgo.Record]) *benchRig {
	r := &benchRig{Rig: arroyo.NewRig(pipeline)}
	r.epoch = r.Assign(arroyo.Partition{Topic: "events"})
	return r
}

// process hands a fetched slice of records to the lane and waits until all of
// them are settled.
func process(tb testing.TB, rig *benchRig, records []*kgo.Record) {
	tb.Helper()
	rig.Feed(rig.epoch, records...)
	if err := rig.Settle(); err != nil {
		tb.Fatal(err)
	}
	watermark, _ := rig.Watermark(rig.epoch)
	if want := records[len(records)-1].Offset + 1; watermark != want {
		tb.Fatalf("the watermark is %d, not %d", watermark, want)
	}
}

// fetch returns what a fetch of a partition holds by default, one mebibyte, of
// records with values of 100 bytes that begin with a number. It is the same few
// records over and over: they stay in the processor's nearest cache, because
// getting at their memory is not what is measured. They are as many as a span
// has, so that the offsets within one follow each other, as a fetch's do. Their
// number is a multiple of the batch size above, so that no batch waits for more.
func fetch() []*kgo.Record {
	const all, distinct = 9000, 64
	records := make([]*kgo.Record, all)
	for i := range records {
		if i >= distinct {
			records[i] = records[i-distinct]
			continue
		}
		value := make([]byte, 100)
		binary.BigEndian.PutUint64(value, uint64(i))
		records[i] = &kgo.Record{Topic: "events", Offset: int64(i), Value: value}
	}
	return records
}

func sumOf(records []*kgo.Record, of func(v uint64) uint64) (sum uint64) {
	for _, r := range records {
		sum += of(binary.BigEndian.Uint64(r.Value))
	}
	return sum
}

func readMem() (m runtime.MemStats) {
	runtime.ReadMemStats(&m)
	return m
}
