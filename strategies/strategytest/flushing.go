package strategytest

import (
	"context"
	"sync/atomic"

	"github.com/arroyo-go/arroyo"
)

// flush: nothing of the epochs that it names is left behind when it is passed
// on, and nothing of the others is lost.
func (s *suite[In, Out]) flush(t reporter) {
	for _, atBound := range []bool{false, true} {
		if s.keeps > 0 && s.ends && atBound {
			continue // what it keeps cannot be told from what it left behind
		}
		tr := s.begin(t)
		epochs := tr.assignAll()
		for _, e := range epochs {
			tr.feed(e, 7)
		}
		if tr.taken() {
			tr.flushOf(epochs[0], atBound)
			tr.feed(epochs[1], 5)
		}
		if tr.taken() {
			tr.flushOf(epochs[1], atBound)
			tr.stop()
			tr.complete(epochs...)
		}
		tr.end()
	}
}

// flushOf flushes the strategy, and looks at what is left of an epoch.
func (tr *trial[In, Out]) flushOf(e arroyo.Epoch, atBound bool) {
	tr.t.Helper()
	keeps := 0
	if atBound {
		keeps = tr.suite.keeps
	}
	leaves := func() bool { return len(tr.ledger.left(e)) > keeps }
	var passed atomic.Bool
	passed.Store(tr.suite.ends)
	if !tr.suite.ends {
		tr.sink.reactWith(func(_ context.Context, c call) error {
			if c.what == flush && c.of(e) && passed.CompareAndSwap(false, true) {
				if left := tr.ledger.left(e); len(left) > keeps {
					tr.t.Errorf("%s was still there when Flush was passed on, and so were %d others of its epoch", at(left[0]), len(left)-1)
				}
			}
			return nil
		})
		defer tr.sink.reactWith(nil)
	}
	if atBound {
		tr.rig.FlushAtBound(e)
	} else {
		tr.rig.Drain(e)
	}
	if tr.wait(func() bool { return passed.Load() && !leaves() }) {
		return
	}
	if !passed.Load() {
		tr.t.Errorf("Flush was not passed on within %v", limit)
		return
	}
	left := tr.ledger.left(e)
	tr.t.Errorf("%s was left behind by a Flush of its epoch, and so were %d others", at(left[0]), len(left)-1)
}

// flushOfSome: a Flush does not wait for other epochs' messages, on which the
// strategy's function is at work.
func (s *suite[In, Out]) flushOfSome(t reporter) {
	tr := s.begin(t)
	defer tr.end()
	epochs := tr.assignAll()
	tr.feed(epochs[0], 7)
	tr.feed(epochs[2], 7)
	if !tr.taken() {
		return
	}
	tr.shut(epochs[1])
	tr.feed(epochs[1], 1)
	if !waitFor(soon, tr.allTaken) {
		// It works in Submit, so nothing else goes on.
		tr.openAll()
		tr.taken()
		return
	}
	tr.flushOf(epochs[0], false)
	tr.openAll()
	tr.stop()
	tr.complete(epochs...)
}
