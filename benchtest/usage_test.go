package benchtest

import (
	"runtime"
	"time"
)

// usage is what this process used.
type usage struct {
	elapsed time.Duration
	cpu     time.Duration // user and system time of all threads
	allocs  float64       // heap objects
	bytes   float64       // of heap objects
	gcs     float64       // cycles of the garbage collector
}

// startUsage begins to measure, on a heap without garbage.
func startUsage() (stop func() usage) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	began := time.Now()
	return func() usage {
		u := usage{elapsed: time.Since(began), cpu: cpuTime() - cpu}
		runtime.ReadMemStats(&after)
		u.allocs = float64(after.Mallocs - before.Mallocs)
		u.bytes = float64(after.TotalAlloc - before.TotalAlloc)
		u.gcs = float64(after.NumGC - before.NumGC)
		return u
	}
}

// meter measures a reader: all of it, or from its first record on if these come
// at a rate, so that joining is not in it.
type meter struct {
	fromFirst bool
	stop      func() usage
}

func startMeter(s source) *meter {
	return &meter{fromFirst: s.begin != nil, stop: startUsage()}
}

// first is called when the first record is there.
func (m *meter) first() {
	if m.fromFirst {
		m.stop = startUsage()
	}
}
