package strategytest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/arroyo-go/arroyo"
)

// abandoned: under a context that has ended nothing is handed on or settled,
// and everything ends, wherever the strategy is.
func (s *suite[In, Out]) abandoned(t reporter) {
	for _, state := range []string{"idle", "at work", "in the next step"} {
		tr := s.begin(t)
		epochs := tr.assignAll()
		if state == "at work" {
			tr.shut(epochs[1])
		}
		if state == "in the next step" {
			tr.sink.reactWith(untilEnded)
		}
		for _, e := range epochs {
			tr.feed(e, 7)
		}
		waitFor(soon, tr.allTaken)
		calls, verdicts := tr.sink.count(), len(tr.rig.Verdicts())
		tr.rig.Abandon()
		if !waitFor(soon, tr.isDone) {
			tr.t.Errorf("the strategy has not ended %v after its context (it was %s)", soon, state)
		}
		for _, c := range tr.sink.since(calls) {
			// One that was on its way when its context ended is none.
			onItsWay := !c.ended && c.ctx.Err() != nil
			if c.what != closes && !onItsWay {
				tr.t.Errorf("the context had ended, and there was a %v in the next step (the strategy was %s)", c, state)
			}
			if c.what == closes && !c.ended {
				tr.t.Errorf("the next step was closed as if everything were done, but its work is abandoned")
			}
		}
		// A function that was at work may have done it.
		if n := len(tr.rig.Verdicts()) - verdicts; n > 0 && state == "idle" {
			tr.t.Errorf("%d messages were %s when the context had ended", n, tr.rig.Verdicts()[verdicts].Kind)
		}
		tr.end()
	}
}

func untilEnded(ctx context.Context, c call) error {
	if c.what != submit {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(limit): // it is a context that nobody ends
		return nil
	}
}

// fenced: what is held back of an epoch that is over is not handed on; another
// epoch of the same partition begins anew, and the others go on.
func (s *suite[In, Out]) fenced(t reporter) {
	handsOn := s.handsOn(t, 20)
	tr := s.begin(t)
	defer tr.end()
	epochs := tr.assignAll()
	for _, e := range epochs {
		tr.feed(e, 20)
	}
	if !tr.taken() {
		return
	}
	calls := tr.sink.count()
	tr.fence(epochs[0])
	again := tr.assign(0)
	tr.feed(again, 20)
	tr.feed(epochs[1], 20)
	if !tr.taken() {
		return
	}
	tr.rig.FlushAtBound()
	waitFor(soon, func() bool { return false })
	tr.stop()
	tr.checkNoneFenced(calls)
	tr.complete(again, epochs[1], epochs[2])
	// What is put together with others may come to nothing.
	if handsOn && !s.folds && tr.ledger.allAcked(again) {
		tr.t.Errorf("what was read again in a new epoch was taken for what it was before: all of it was acked at once, though nothing of it was done before")
	}
}

// handsOn reports whether any of the first n messages of a partition is handed
// on when nothing happens.
func (s *suite[In, Out]) handsOn(t reporter, n int) bool {
	tr := s.begin(t)
	defer tr.end()
	e := tr.assign(0)
	tr.feed(e, n)
	if tr.taken() {
		tr.rig.FlushAtBound()
		waitFor(soon, func() bool { return false })
		tr.stop()
		tr.complete(e)
	}
	return tr.ledger.anyHandedOn(e)
}

func (tr *trial[In, Out]) fence(e arroyo.Epoch) {
	tr.ledger.fence(e)
	tr.rig.Fence(e)
}

func (tr *trial[In, Out]) checkNoneFenced(since int) {
	tr.t.Helper()
	for _, c := range tr.sink.since(since) {
		if c.fenced && !tr.suite.folds {
			tr.t.Errorf("a message of an epoch that was over was handed on")
			return
		}
	}
}

// fencedInACall: an epoch ends while the strategy is at work on it, or the next
// step is.
func (s *suite[In, Out]) fencedInACall(t reporter) {
	for _, state := range []string{"at work", "in the next step"} {
		tr := s.begin(t)
		epochs := tr.assignAll()
		var entered atomic.Bool
		release := make(chan struct{})
		if state == "at work" {
			tr.shut(epochs[0])
		} else {
			tr.sink.reactWith(func(ctx context.Context, c call) error {
				if c.what != submit || !entered.CompareAndSwap(false, true) {
					return nil
				}
				select {
				case <-release:
					return nil
				case <-ctx.Done(): // the epoch's, if it was handed down
					return context.Cause(ctx)
				}
			})
		}
		tr.feed(epochs[0], 10)
		waitFor(soon, tr.allTaken)
		tr.fence(epochs[0]) // what was not submitted of it, is not
		returned := func() bool { return tr.allTaken() || tr.isAtWork(epochs[0]) }
		if state == "at work" && !waitFor(soon, returned) {
			tr.t.Errorf("Submit has not returned %v after its context ended", soon)
		}
		close(release)
		tr.openAll()
		again := tr.assign(0)
		tr.feed(again, 10)
		tr.feed(epochs[1], 10)
		if tr.taken() {
			tr.stop()
			tr.complete(again, epochs[1])
		}
		tr.end()
	}
}
