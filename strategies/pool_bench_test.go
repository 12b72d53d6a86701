//go:build unix

package strategies_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// fetched returns what a fetch of a partition may hold, with keys of which each
// comes about ten times.
func fetched(n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: "events", Offset: int64(i), Key: fmt.Appendf(nil, "key-%d", i*7919%(n/10))}
	}
	return records
}

// spin computes for about a microsecond.
func spin(seed uint64) uint64 {
	for range 620 {
		seed = seed*6364136223846793005 + 1442695040888963407
	}
	return seed
}

// poolTasks are what the benchmarks' tasks do.
var poolTasks = []struct {
	name string
	n    []int // how many at once
	do   func(uint64) uint64
}{
	{"nothing", []int{1, 2}, func(v uint64) uint64 { return v }},
	{"1µs", []int{1, 2}, spin},
	{"1ms", []int{256}, func(v uint64) uint64 { time.Sleep(time.Millisecond); return v }},
}

// BenchmarkPool is what a record costs on its way through a step that works in
// parallel, with a lane and a watermark and without a broker. Bare is the same
// work by a plain pool of goroutines around a channel, with nothing in order
// and nothing to settle.
func BenchmarkPool(b *testing.B) {
	builds := map[string]func(n int, f func(context.Context, records) (uint64, error)) arroyo.Strategy[*kgo.Record]{
		"InParallel": func(n int, f func(context.Context, records) (uint64, error)) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskInParallel(n, f, strategies.Noop[uint64]())
		},
		"Unordered": func(n int, f func(context.Context, records) (uint64, error)) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskUnordered(n, f, strategies.Noop[uint64]())
		},
		"ByKey": func(n int, f func(context.Context, records) (uint64, error)) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskByKey(n, byRecordKey, f, strategies.Noop[uint64]())
		},
		"RunTask": func(n int, f func(context.Context, records) (uint64, error)) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(f, strategies.Noop[uint64]())
		},
	}
	for _, task := range poolTasks {
		for _, n := range task.n {
			prefix := fmt.Sprintf("%s/%d", task.name, n)
			b.Run(prefix+"/Bare", func(b *testing.B) { benchBare(b, n, task.do) })
			for _, name := range []string{"InParallel", "Unordered", "ByKey", "RunTask"} {
				if name == "RunTask" && n > 1 {
					continue
				}
				b.Run(prefix+"/"+name, func(b *testing.B) {
					benchPool(b, builds[name](n, func(_ context.Context, m records) (uint64, error) {
						return task.do(uint64(m.Payload.Offset)), nil
					}))
				})
			}
		}
	}
}

const perFetch = 20_000

func benchPool(b *testing.B, pipeline arroyo.Strategy[*kgo.Record]) {
	rig := arroyo.NewRig(pipeline)
	e := rig.Assign(arroyo.Partition{Topic: "events"})
	records := fetched(perFetch)
	fetch := func() {
		rig.Feed(e, records...)
		if err := rig.Settle(); err != nil {
			b.Fatal(err)
		}
	}
	fetch()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	cpu := cpuTime()
	for b.Loop() {
		fetch()
		n += len(records)
	}
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err := rig.Finish(); err != nil {
		b.Fatal(err)
	}
	report(b, n, cpu)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(n), "allocs/record")
}

func benchBare(b *testing.B, n int, do func(uint64) uint64) {
	work := make(chan []*kgo.Record, n)
	var done, workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for records := range work {
				for _, r := range records {
					do(uint64(r.Offset))
				}
				done.Done()
			}
		})
	}
	records := fetched(perFetch)
	size := 100
	if n > 2 {
		size = 1
	}
	total := 0
	cpu := cpuTime()
	for b.Loop() {
		for i := 0; i < len(records); i += size {
			done.Add(1)
			work <- records[i : i+size]
		}
		done.Wait()
		total += len(records)
	}
	close(work)
	workers.Wait()
	report(b, total, cpuTime()-cpu)
}

// report tells the time and, for machines that others use too, the time of all
// cores that a record took.
func report(b *testing.B, n int, cpu time.Duration) {
	b.ReportMetric(0, "ns/op") // an op is a fetch
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(n), "cpu-ns/record")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPoolBudget fails if a step that works in parallel begins to allocate for
// each record.
func TestPoolBudget(t *testing.T) {
	const most = 0.05 // allocations a record: what remains is for each chunk and run
	zero := func(context.Context, records) (uint64, error) { return 0, nil }
	for name, pipeline := range map[string]arroyo.Strategy[*kgo.Record]{
		"InParallel": strategies.RunTaskInParallel(2, zero, strategies.Noop[uint64]()),
		"Unordered":  strategies.RunTaskUnordered(2, zero, strategies.Noop[uint64]()),
		"ByKey":      strategies.RunTaskByKey(2, func(m records) int64 { return m.Payload.Offset % 1000 }, zero, strategies.Noop[uint64]()),
		"Queue":      strategies.Queue(10_000, strategies.Noop[*kgo.Record]()),
		"Route": strategies.RouteByKey(strategies.Branches[*kgo.Record]{
			"key-1":             strategies.RunTask(zero, strategies.Noop[uint64]()),
			strategies.Fallback: strategies.Noop[*kgo.Record](),
		}),
		"RunTask with Retry": strategies.RunTask(zero, strategies.Noop[uint64](), strategies.Retry(strategies.RetryPolicy{})),
		"ForEach with Retry": strategies.ForEach(func(context.Context, records) error { return nil }, strategies.Retry(strategies.RetryPolicy{})),
	} {
		t.Run(name, func(t *testing.T) {
			rig := arroyo.NewRig(pipeline)
			e := rig.Assign(arroyo.Partition{Topic: "events"})
			records := fetched(perFetch)
			fetch := func() {
				rig.Feed(e, records...)
				if err := rig.Settle(); err != nil {
					t.Fatal(err)
				}
			}
			fetch()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range 10 {
				fetch()
			}
			runtime.ReadMemStats(&after)
			if err := rig.Finish(); err != nil {
				t.Fatal(err)
			}
			if got := float64(after.Mallocs-before.Mallocs) / float64(10*len(records)); got > most {
				t.Errorf("%.3f allocations a record, more than %v", got, most)
			}
		})
	}
}
