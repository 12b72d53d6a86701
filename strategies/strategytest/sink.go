package strategytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// sink is the step behind the strategy under test. It keeps what it is given
// without a verdict, until settle.
type sink[Out any] struct {
	t      reporter
	ledger *ledger
	react  func(context.Context, call) error // what a check wants of a call; set while nothing goes on
	timers bool                              // use the lane of each Submit

	busy atomic.Bool

	mu     sync.Mutex
	calls  []call
	closed int
	held   []arroyo.Message[Out]
}

// call is a call of the sink.
type call struct {
	what    method
	records []*kgo.Record
	of      func(arroyo.Epoch) bool // of a Flush
	ctx     context.Context
	ended   bool // whether that had ended
	fenced  bool // whether a message was fenced, or a part of it
}

type method string

const (
	submit method = "Submit"
	flush  method = "Flush"
	closes method = "Close"
)

func (s *sink[Out]) Submit(ctx context.Context, msgs []arroyo.Message[Out]) error {
	defer s.enter(submit)()
	c := call{what: submit, ctx: ctx, ended: ctx.Err() != nil, records: recordsOf(msgs)}
	for _, m := range msgs {
		handedOn(s.ledger, m)
		c.fenced = c.fenced || s.anyFenced(m)
	}
	if lane := s.lane(ctx); lane != nil && s.timers {
		lane.After(time.Millisecond, func(context.Context) error {
			defer s.enter("a function that was given to After")()
			return nil
		})
	}
	err := s.called(ctx, c)
	if !slices.Equal(c.records, recordsOf(msgs)) {
		s.t.Errorf("the slice that the next step was given was changed while it worked")
	}
	if err == nil {
		s.mu.Lock()
		s.held = append(s.held, msgs...)
		s.mu.Unlock()
	}
	return err
}

func (s *sink[Out]) Flush(ctx context.Context) error {
	defer s.enter(flush)()
	s.lane(ctx)
	return s.called(ctx, call{what: flush, ctx: ctx, ended: ctx.Err() != nil, of: arroyo.FlushOf(ctx)})
}

func (s *sink[Out]) Close(ctx context.Context) error {
	defer s.enter(closes)()
	defer func() {
		s.mu.Lock()
		s.closed++
		s.mu.Unlock()
	}()
	return s.called(ctx, call{what: closes, ctx: ctx, ended: ctx.Err() != nil})
}

// enter looks after the promise that there is one call at a time, and none
// after Close.
func (s *sink[Out]) enter(what method) (leave func()) {
	if !s.busy.CompareAndSwap(false, true) {
		s.t.Errorf("%s was called while another call of the next step went on", what)
		return func() {}
	}
	if s.closes() > 0 {
		s.t.Errorf("%s of the next step was called after its Close", what)
	}
	return func() { s.busy.Store(false) }
}

// lane returns the lane of a call, which has to have one.
func (s *sink[Out]) lane(ctx context.Context) (l *arroyo.Lane) {
	defer func() {
		if recover() != nil {
			s.t.Errorf("the next step was called under a context without a lane")
		}
	}()
	return arroyo.LaneOf(ctx)
}

func (s *sink[Out]) called(ctx context.Context, c call) error {
	s.mu.Lock()
	s.calls = append(s.calls, c)
	react := s.react
	s.mu.Unlock()
	if react != nil {
		return react(ctx, c)
	}
	return nil
}

func (s *sink[Out]) reactWith(react func(context.Context, call) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.react = react
}

// since returns the calls from the nth on.
func (s *sink[Out]) since(n int) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls[n:])
}

func (s *sink[Out]) count() int { return len(s.since(0)) }

func (s *sink[Out]) closes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// settle acks what the sink has.
func (s *sink[Out]) settle() {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	arroyo.AckAll(held)
}

// anyFenced reports whether a message, or a part of it, is of an epoch that is
// over.
func (s *sink[Out]) anyFenced(m arroyo.Message[Out]) bool {
	if m.Fenced() {
		return true
	}
	for e := range m.Epochs() {
		if s.ledger.isFenced(e) {
			return true
		}
	}
	return false
}

func recordsOf[T any](msgs []arroyo.Message[T]) (records []*kgo.Record) {
	for _, m := range msgs {
		records = append(records, m.Record())
	}
	return records
}

func (c call) String() string { return fmt.Sprintf("%s of %d messages", c.what, len(c.records)) }
