package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// Filter hands on the messages for which keep returns true, and acks the
// others.
//
// Where many messages a millisecond go through a Filter and a ForEach behind it,
// they work as one, which the ForEach's name stands for: in Status, while keep
// hangs, say. What fails is located in the step that it failed in.
func Filter[T any](keep func(arroyo.Message[T]) bool, next arroyo.Strategy[T], opts ...Option) arroyo.Strategy[T] {
	require("Filter", "the function is nil", keep != nil)
	require("Filter", "the next step is nil", next != nil)
	f := &filter[T]{
		Forward: arroyo.ForwardTo(next),
		step:    configure("Filter", keep, opts).step,
		keep:    keep,
	}
	if each, ok := next.(*forEach[T]); ok {
		f.many = &forEach[T]{step: each.step, f: each.f, filter: f}
	}
	return f
}

type filter[T any] struct {
	arroyo.Forward[T]
	step    *arroyo.Step
	keep    func(arroyo.Message[T]) bool
	many    *forEach[T]         // the next step, if it is a ForEach, together with this one
	kept    []arroyo.Message[T] // both kept for their memory
	dropped []arroyo.Message[T]
}

func (s *filter[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	if s.many != nil && len(msgs) >= fromMany {
		return s.many.Submit(ctx, msgs)
	}
	s.step.Enter(ctx, len(msgs))
	kept, err := s.split(msgs)
	if err == nil {
		arroyo.AckAll(s.dropped)
		if len(kept) > 0 {
			err = s.Next.Submit(ctx, kept)
		}
	}
	clear(s.kept)
	clear(s.dropped)
	s.kept, s.dropped = s.kept[:0], s.dropped[:0]
	return err
}

// split returns what to hand on: all of msgs as it is if nothing is dropped.
func (s *filter[T]) split(msgs []arroyo.Message[T]) (kept []arroyo.Message[T], err error) {
	at := 0
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[at], v)
		}
	}()
	return s.each(msgs, &at), nil
}

func (s *filter[T]) each(msgs []arroyo.Message[T], at *int) []arroyo.Message[T] {
	from := 0 // start of a run of kept messages
	for {
		i := firstDropped(s.keep, msgs, from, at)
		if i == len(msgs) {
			break
		}
		s.kept = append(s.kept, msgs[from:i]...)
		s.dropped = append(s.dropped, msgs[i])
		from = i + 1
	}
	if from == 0 {
		return msgs
	}
	s.kept = append(s.kept, msgs[from:]...)
	return s.kept
}

// firstDropped returns the first message from i on that is not to be kept. It is
// apart from the rest for the same reason as results.
func firstDropped[T any](keep func(arroyo.Message[T]) bool, msgs []arroyo.Message[T], i int, at *int) int {
	for ; uint(i) < uint(len(msgs)); i++ {
		*at = i
		m := msgs[i]
		if m.Fenced() {
			continue
		}
		if !keep(m) {
			return i
		}
	}
	return len(msgs)
}
