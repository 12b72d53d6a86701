package strategies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Span is what Interval hands on: a stretch of a partition, in offsets and in
// the time of its records. The next one begins where it ends.
type Span struct {
	Partition arroyo.Partition
	First     int64     // the offset that it begins with
	Next      int64     // the offset that it ends before
	Start     time.Time // the timestamp of the record at First
	End       time.Time // the timestamp of the record at Next
}

// Interval makes spans of consecutive records of a partition: each is from one
// record to the next one whose timestamp is later, by atLeast or more. A record
// with the same timestamp, or an earlier one, ends nothing and is a part of the
// span. A span is handed on when the record that ends it is seen.
//
// A span stands for its records, without the one that ends it, which the next
// one begins with. So that one is settled last, and whoever reads the partition
// next begins with it: across rebalances spans leave no gap, and one is made
// again only if it was not settled. The span that has no end yet is returned
// when its partition is given up.
//
// When so much is unsettled that no more is read, a span ends early: at the last
// record seen, whatever its timestamp is, though not before it starts. The last
// record of each partition is not settled in any case, and what was fetched with
// it counts as in flight until it is; so allow a processor more than 64 records
// in flight for each partition.
//
// It keeps state for each partition, by epoch, so it works in a pipeline with
// one partition as well as in one with many. The messages of a partition have
// to come in the order of their offsets: put it in front of steps that do not
// keep it. It panics if atLeast is negative.
func Interval(atLeast time.Duration, next arroyo.Strategy[Span], opts ...Option) arroyo.Strategy[*kgo.Record] {
	require("Interval", "the next step is nil", next != nil)
	require("Interval", fmt.Sprintf("a length of %v is negative", atLeast), atLeast >= 0)
	return &interval{
		step:    configure("Interval", nil, opts).step,
		atLeast: atLeast,
		next:    next,
		open:    make(map[arroyo.Epoch]*openSpan),
	}
}

type interval struct {
	step    *arroyo.Step
	atLeast time.Duration
	next    arroyo.Strategy[Span]
	open    map[arroyo.Epoch]*openSpan
	out     []arroyo.Message[Span] // kept for its memory
}

// openSpan is a span that has no end yet.
type openSpan struct {
	first   int64
	start   time.Time
	last    mark
	members []arroyo.Message[struct{}]
}

// mark is where a record is.
type mark struct {
	offset int64
	at     time.Time
}

var errNoRecord = errors.New("the message has no record, so it is in no interval")

func (s *interval) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	s.step.Enter(ctx, len(msgs))
	for i := range msgs {
		m := &msgs[i]
		if m.Fenced() {
			continue
		}
		if err := s.take(m); err != nil {
			return arroyo.NewStepError(s.step.Name(), *m, err)
		}
	}
	return s.handOn(ctx)
}

func (s *interval) take(m *arroyo.Message[*kgo.Record]) error {
	r := m.Record()
	if r == nil {
		return errNoRecord
	}
	e := m.Epoch()
	at := mark{r.Offset, r.Timestamp}
	open := s.open[e]
	switch {
	case open == nil:
		s.forgetFenced()
		open = &openSpan{first: at.offset, start: at.at}
		s.open[e] = open
	case at.offset > open.last.offset && at.at.After(open.start) && at.at.Sub(open.start) >= s.atLeast:
		s.end(e.Partition, open, at)
	}
	open.last = at
	open.members = append(open.members, arroyo.With(*m, struct{}{}))
	return nil
}

// end ends a span at a record, with which the next one begins.
func (s *interval) end(p arroyo.Partition, open *openSpan, at mark) {
	s.out = append(s.out, arroyo.Join(Span{p, open.first, at.offset, open.start, at.at}, open.members))
	clear(open.members)
	open.members = open.members[:0]
	open.first, open.start = at.offset, at.at
}

func (s *interval) handOn(ctx context.Context) (err error) {
	if len(s.out) > 0 {
		err = s.next.Submit(ctx, s.out)
	}
	clear(s.out)
	s.out = s.out[:0]
	return err
}

func (s *interval) Flush(ctx context.Context) error {
	of := arroyo.FlushOf(ctx)
	s.forgetFenced()
	epochs := slices.SortedFunc(maps.Keys(s.open), func(a, b arroyo.Epoch) int { return cmp.Compare(a.N, b.N) })
	for _, e := range epochs {
		if !of(e) {
			continue
		}
		if open := s.open[e]; giveBack(open) {
			delete(s.open, e)
		} else {
			s.endEarly(e.Partition, open)
		}
	}
	if err := s.handOn(ctx); err != nil {
		return err
	}
	return s.next.Flush(ctx)
}

// endEarly ends a span before its last record. Time does not run backwards.
func (s *interval) endEarly(p arroyo.Partition, open *openSpan) {
	if open.last.offset == open.first {
		return
	}
	from := len(open.members) - 1
	last := open.members[from]
	open.members = open.members[:from]
	at := open.last
	if at.at.Before(open.start) {
		at.at = open.start
	}
	s.end(p, open, at)
	open.members = append(open.members, last)
}

// giveBack returns a span's records if its partition is being given up.
func giveBack(open *openSpan) (all bool) {
	all = true
	for _, m := range open.members {
		all = m.ReturnIfDraining() && all
	}
	return all
}

func (s *interval) forgetFenced() {
	maps.DeleteFunc(s.open, func(_ arroyo.Epoch, open *openSpan) bool { return open.members[0].Fenced() })
}

func (s *interval) Close(ctx context.Context) error {
	if ctx.Err() == nil {
		for _, open := range s.open {
			giveBack(open)
		}
	}
	s.open = nil
	return s.next.Close(ctx)
}
