package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// Where many messages go through a Filter and a ForEach behind it, one loop does
// the work of both: nothing is collected, and what is dropped is acked together
// with what is around it. Until such a Submit is done, Status knows only how
// many messages the filter was given. With fewer, each step works for itself.

// callsOfKept is calls for the messages that keep wants.
func callsOfKept[T any](ctx context.Context, keep func(arroyo.Message[T]) bool, f func(context.Context, arroyo.Message[T]) error, msgs []arroyo.Message[T], at *place) (int, error) {
	at.kept = -1
	for i := range msgs {
		at.i = i
		m := msgs[i]
		if m.Fenced() {
			continue
		}
		if !keep(m) {
			at.dropped++
			continue
		}
		at.kept = i
		if err := f(ctx, m); err != nil {
			return i, err
		}
	}
	return len(msgs), nil
}

// enter says that the steps work from here on. How many messages f is called
// with is not known yet if there is a filter.
func (s *forEach[T]) enter(ctx context.Context, messages int) {
	if s.filter != nil {
		s.filter.step.Enter(ctx, messages)
		messages = 0
	}
	s.step.Enter(ctx, messages)
}

// stepAt returns the step whose function is called.
func (s *forEach[T]) stepAt(at *place) *arroyo.Step {
	if s.filter != nil && at.kept != at.i {
		return s.filter.step
	}
	return s.step
}
