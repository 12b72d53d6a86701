package bench

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Usage is what a process used.
type Usage struct {
	Elapsed time.Duration
	First   time.Duration // of Elapsed, until the first record was there
	CPU     time.Duration // user and system time of all threads
	Allocs  float64       // heap objects
	Bytes   float64       // of heap objects
	GCs     float64       // cycles of the garbage collector
}

// startUsage begins to measure, on a heap without garbage.
func startUsage() (stop func() Usage) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	began := time.Now()
	return func() Usage {
		u := Usage{Elapsed: time.Since(began), CPU: cpuTime() - cpu}
		runtime.ReadMemStats(&after)
		u.Allocs = float64(after.Mallocs - before.Mallocs)
		u.Bytes = float64(after.TotalAlloc - before.TotalAlloc)
		u.GCs = float64(after.NumGC - before.NumGC)
		return u
	}
}

// Meter measures a reader: all of it, or from its first record on if these come
// at a rate, so that joining is not in it.
type Meter struct {
	fromFirst bool
	stop      func() Usage
	began     time.Time
	first     atomic.Int64 // a time.Duration
}

// StartMeter begins to measure a reader of the source.
func StartMeter(s Source) *Meter {
	return &Meter{fromFirst: s.begin != nil, stop: startUsage(), began: time.Now()}
}

// First is called when the first record is there.
func (m *Meter) First() {
	if m.fromFirst {
		m.stop = startUsage()
		return
	}
	m.first.Store(int64(time.Since(m.began)))
}

// Stop returns what was used. It is called when the work of the last record is
// done.
func (m *Meter) Stop() Usage {
	u := m.stop()
	u.First = time.Duration(m.first.Load())
	return u
}
