package strategytest

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// source is the step in front of the strategy under test. It makes its
// messages, and looks at what becomes of the slices.
type source[In any] struct {
	t       reporter
	ledger  *ledger
	payload func(*kgo.Record) In
	step    arroyo.Strategy[In]
	closed  func() // is told that Close has returned

	begun    atomic.Int64 // messages of Submits that were called
	accepted atomic.Int64 // and that have returned
}

func (s *source[In]) Submit(ctx context.Context, records []arroyo.Message[*kgo.Record]) error {
	msgs := make([]arroyo.Message[In], len(records))
	for i, m := range records {
		msgs[i] = arroyo.With(m, s.payload(m.Payload))
	}
	before := slices.Clone(msgs)
	s.begun.Add(int64(len(msgs)))
	s.ledger.submitted(records[0].Epoch(), len(records))
	err := s.step.Submit(ctx, msgs)
	for i := range msgs {
		if !same(before[i], msgs[i]) {
			s.t.Errorf("the slice of a Submit was changed")
			break
		}
	}
	clear(msgs) // whoever kept the slice finds nothing in it
	s.accepted.Add(int64(len(msgs)))
	return err
}

// same reports whether nothing of a message was changed, as far as that can be
// told.
func same[T any](a, b arroyo.Message[T]) bool {
	if a.Record() != b.Record() {
		return false
	}
	x, y := reflect.ValueOf(&a.Payload).Elem(), reflect.ValueOf(&b.Payload).Elem()
	return !x.Comparable() || !y.Comparable() || x.Equal(y) || !x.Equal(x)
}

func (s *source[In]) Flush(ctx context.Context) error { return s.step.Flush(ctx) }

func (s *source[In]) Close(ctx context.Context) error {
	defer s.closed()
	return s.step.Close(ctx)
}
