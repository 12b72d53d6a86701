package bench

import (
	"runtime"
	"time"
)

// Cost is what the work on a record costs, besides decoding and counting it.
type Cost string

const (
	None Cost = "none"
	CPU  Cost = "1µs CPU"
	Wait Cost = "1ms wait"
)

// Do does the work on a record.
func (c Cost) Do(v uint64) {
	switch c {
	case CPU:
		runtime.KeepAlive(spin(v))
	case Wait:
		time.Sleep(time.Millisecond)
	}
}

// spin takes about a microsecond: so many dependent steps of a random number
// generator.
//
//go:noinline
func spin(v uint64) uint64 {
	for range 500 {
		v ^= v << 13
		v ^= v >> 7
		v ^= v << 17
	}
	return v
}

// name returns the cost as a part of a benchmark's name.
func (c Cost) name() string {
	switch c {
	case CPU:
		return "cpu1us"
	case Wait:
		return "wait1ms"
	}
	return "none"
}
