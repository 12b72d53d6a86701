package strategytest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/arroyo-go/arroyo"
)

var errNext = errors.New("strategytest: the next step failed")

// failingNext: an error of the next step ends the run, whoever called it and
// when, and what was not taken is not acked.
func (s *suite[In, Out]) failingNext(t reporter) {
	for _, what := range []method{submit, flush, closes} {
		tr := s.begin(t)
		tr.fail(what, func() error { return errNext })
		if err := tr.rig.Err(); tr.failure != nil && !errors.Is(err, errNext) {
			tr.t.Errorf("%s of the next step failed, but the run ended with %v", what, err)
		}
		tr.end()
	}
}

// panickingNext is failingNext with a panic.
func (s *suite[In, Out]) panickingNext(t reporter) {
	const value = "strategytest: the next step panics"
	for _, what := range []method{submit, flush, closes} {
		tr := s.begin(t)
		tr.fail(what, func() error { panic(value) })
		err := tr.rig.Err()
		var p *arroyo.PanicError
		if tr.failure != nil && (!errors.As(err, &p) || p.Value != value) {
			tr.t.Errorf("%s of the next step panicked, but the run ended with %v", what, err)
		}
		tr.end()
	}
}

// fail lets the first call of one kind fail, and waits for the end.
func (tr *trial[In, Out]) fail(what method, failure func() error) {
	tr.t.Helper()
	var failedAt atomic.Int64 // how many calls there were then; 0: it has not failed
	failed := func() bool { return failedAt.Load() > 0 }
	tr.sink.reactWith(func(_ context.Context, c call) error {
		if c.what == what && failedAt.CompareAndSwap(0, int64(tr.sink.count())) {
			return failure()
		}
		return nil
	})
	epochs := tr.assignAll()
	for _, e := range epochs {
		tr.feed(e, 7)
	}
	if !tr.wait(func() bool { return tr.allTaken() || failed() }) {
		tr.t.Errorf("Submit does not return")
		return
	}
	if what == submit {
		tr.wait(failed) // by a timer, if it holds everything back
	}
	if what != closes && !failed() {
		tr.rig.Drain(epochs...)
		tr.wait(failed)
	}
	if what == closes {
		tr.rig.Stop()
		tr.wait(failed)
	}
	if !failed() {
		if what != submit { // there may be nothing to hand on
			tr.t.Errorf("%s of the next step was not called", what)
		}
		return
	}
	tr.failure = errNext
	if !waitFor(soon, tr.isDone) {
		tr.t.Errorf("the run has not ended %v after %s of the next step failed", soon, what)
		return
	}
	for _, c := range tr.sink.since(int(failedAt.Load())) {
		if c.what != closes {
			tr.t.Errorf("there was a %v in the next step after its %s failed", c, what)
			return
		}
	}
	tr.ledger.checkUntouched()
}
