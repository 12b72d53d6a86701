package strategytest

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/arroyo-go/arroyo"
)

// delivery: each message is settled or handed on, once and in order, however
// they are submitted; and so it is at the end of the run.
func (s *suite[In, Out]) delivery(t reporter) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 0))
		tr := s.begin(t)
		epochs := tr.assignAll()
		for range 30 {
			tr.feed(epochs[rng.IntN(partitions)], 1+rng.IntN(1+20*int(seed)))
			if rng.IntN(3) == 0 {
				time.Sleep(time.Duration(rng.IntN(3)) * time.Second)
			}
		}
		if tr.taken() {
			tr.stop()
			tr.complete(epochs...)
			tr.checkCleanEnd()
		}
		tr.end()
	}
}

// checkCleanEnd looks at how the next step was told of the end.
func (tr *trial[In, Out]) checkCleanEnd() {
	tr.t.Helper()
	if tr.suite.ends {
		return
	}
	calls := tr.sink.since(0)
	if n := len(calls); n < 2 || calls[n-1].what != closes || calls[n-2].what != flush {
		tr.t.Errorf("the next step was not flushed behind everything else, and then closed")
	}
	for _, c := range calls {
		if c.ended {
			tr.t.Errorf("the context of a call of the next step, %v, had ended", c)
			return
		}
	}
}

// slowNext: order, completeness and the end of the run do not depend on how
// long the next step takes; the strategy's timers keep to its lane; and nothing
// that the strategy holds meanwhile stops the time.
func (s *suite[In, Out]) slowNext(t reporter) {
	tr := s.begin(t)
	defer tr.end()
	tr.sink.timers = true
	tr.sink.reactWith(func(_ context.Context, c call) error {
		time.Sleep(time.Second)
		return nil
	})
	epochs := tr.assignAll()
	for range 4 {
		for _, e := range epochs {
			tr.feed(e, 5)
			time.Sleep(300 * time.Millisecond)
		}
	}
	if !tr.taken() {
		return
	}
	tr.stop()
	tr.complete(epochs...)
	tr.checkCleanEnd()
}

// busyNext: while the next step is in a call, the strategy takes in no more
// than it has room for.
func (s *suite[In, Out]) busyNext(t reporter) {
	tr := s.begin(t)
	defer tr.end()
	release := make(chan struct{})
	var (
		busy   atomic.Bool
		before atomic.Int64 // what was taken in when it became so
	)
	tr.sink.reactWith(func(_ context.Context, c call) error {
		if c.what == submit {
			if busy.CompareAndSwap(false, true) {
				before.Store(tr.source.accepted.Load())
			}
			<-release
		}
		return nil
	})
	epochs := tr.assignAll()
	for _, e := range epochs {
		tr.feed(e, 2)
	}
	if !tr.wait(busy.Load) { // it holds everything back
		tr.rig.FlushAtBound()
		tr.wait(busy.Load)
	}
	taken := func() int64 { return tr.source.accepted.Load() - before.Load() }
	if busy.Load() && tr.takesIn(epochs, taken) {
		tr.t.Errorf("the next step is in a call, and %d messages more were taken in, more than the capacity of %d", taken(), s.capacity)
	}
	close(release)
	if !tr.taken() {
		return
	}
	tr.stop()
	tr.complete(epochs...)
}

// takesIn feeds more and more, and reports whether more than the capacity is
// taken in.
func (tr *trial[In, Out]) takesIn(epochs []arroyo.Epoch, taken func() int64) bool {
	const piece = 256
	for n := 0; taken() <= int64(tr.suite.capacity); n++ {
		before := taken()
		tr.feed(epochs[n%partitions], piece)
		if !waitFor(time.Minute, func() bool { return taken() > before }) {
			return false
		}
		time.Sleep(10 * time.Second) // what it is at work on may come to the next step
	}
	return true
}
