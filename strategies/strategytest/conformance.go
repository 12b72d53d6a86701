package strategytest

import (
	"testing"
	"testing/synctest"

	"github.com/arroyo-go/arroyo"
)

// Conformance tests that a strategy keeps the contract of arroyo.Strategy:
//
//   - Each message submitted is settled or handed on, once, and in the order of
//     its partition.
//   - Flush leaves nothing behind of the epochs that it names, comes behind
//     their results, and does not wait for others.
//   - Close waits until everything is handed on and closes the next step once;
//     if its context has ended, it hands nothing on.
//   - While the next step is busy the strategy takes in a bounded number of
//     messages.
//   - When a context ends the strategy returns, without an error of its own if
//     it was that of an epoch. What it held back of that epoch is not handed on,
//     and the same records, read again in another epoch, are new to it.
//   - Errors and panics of the next step end the run, also when no Submit is in
//     progress. What the next step did not take is not acked.
//   - The next step is called from one goroutine at a time, under a context
//     with the lane that calls it.
//   - No slice of a Submit is kept or changed, no goroutine is left, no mutex
//     is held while the next step works.
//
// build makes the strategy with its next step; it is called for each test
// anew. input returns the payload of the ith message, and may be called more
// than once for it; if it is a *kgo.Record, that is the record as well, with
// the topic, partition and offset that the test needs. Messages are of three
// partitions, the ith of partition i%3; a record without a key has the key
// "k0" to "k4", the ith that of i%5, and times rise with i.
//
// Each test runs in a synctest bubble, so the strategy, and its functions, must
// not wait for anything outside of it. Everything has ten minutes, of virtual
// time. A function that calls Work lets the suite test more of asynchronous
// steps. Give batches a long wait, so that it is seen what Flush leaves behind.
//
// Messages may be rejected or dropped, but by what they are, not by chance.
func Conformance[In, Out any](t *testing.T, build func(next arroyo.Strategy[Out]) arroyo.Strategy[In], input func(i int) In, opts ...Option) {
	t.Helper()
	s := newSuite(build, input, opts)
	for _, c := range s.checks() {
		t.Run(c.name, func(t *testing.T) {
			defer watchTime()()
			synctest.Test(t, func(t *testing.T) { c.run(t) })
		})
	}
}

// reporter is whom a check tells what it finds: a *testing.T, or a list of the
// suite's own tests.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// suite tests one strategy.
type suite[In, Out any] struct {
	build func(next arroyo.Strategy[Out]) arroyo.Strategy[In]
	input func(i int) In
	config
}

type check struct {
	name string
	run  func(reporter) // in a bubble
}

func newSuite[In, Out any](build func(next arroyo.Strategy[Out]) arroyo.Strategy[In], input func(i int) In, opts []Option) *suite[In, Out] {
	if build == nil || input == nil {
		panic("strategytest: Conformance: a function is nil")
	}
	s := &suite[In, Out]{build: build, input: input, config: config{capacity: 10_000}}
	for _, opt := range opts {
		opt(&s.config)
	}
	return s
}

func (s *suite[In, Out]) checks() []check {
	checks := []check{
		{"delivery", s.delivery},
		{"flush", s.flush},
		{"flush of some", s.flushOfSome},
		{"abandoned", s.abandoned},
		{"fenced", s.fenced},
		{"fenced in a call", s.fencedInACall},
	}
	if s.ends {
		return checks
	}
	return append(checks, []check{
		{"slow next step", s.slowNext},
		{"busy next step", s.busyNext},
		{"failing next step", s.failingNext},
		{"panicking next step", s.panickingNext},
	}...)
}
