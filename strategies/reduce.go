package strategies

import (
	"context"
	"fmt"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Reduce folds messages into a value of the user's and hands that on as one
// message that stands for all of them: when size were added, when a MaxSize is
// reached, when wait has passed since the first one, or when the pipeline is
// flushed as Batch is. Then it begins anew with a value from initial.
//
// add returns the value with the message in it. It owns what it is given: it
// may change and return it. With its error it says what becomes of the message,
// as in RunTask, and the value stays what it was before; so do not change it
// and return an error.
//
// A verdict on the result is one on every message in it that has none. What was
// added cannot be taken out again: if a partition is lost meanwhile, its
// messages stay in the result, and others may process them as well. A result
// all of whose messages are of lost partitions is not handed on.
//
// It panics unless size and wait are positive.
func Reduce[In, A any](size int, wait time.Duration, initial func() A, add func(A, arroyo.Message[In]) (A, error), next arroyo.Strategy[A], opts ...Option) arroyo.Strategy[In] {
	require("Reduce", "the function for the initial value is nil", initial != nil)
	require("Reduce", "the function that adds is nil", add != nil)
	require("Reduce", "the next step is nil", next != nil)
	require("Reduce", fmt.Sprintf("a wait of %v is not positive", wait), wait > 0)
	c := configure("Reduce", add, opts)
	r := &reduction[In, A]{
		limits:  limitsOf[In]("Reduce", size, c),
		initial: initial,
		fold:    add,
	}
	s := &fold[In, A]{config: c, wait: wait, next: next, add: attempted(&c.attempts, asTask(r.add)), ready: r.ready, result: r.result}
	if r.limits.of != nil {
		s.room = r.room
	}
	return s
}

// reduction is the value that Reduce makes, and how much is in it.
type reduction[In, A any] struct {
	limits  limits[In]
	initial func() A
	fold    func(A, arroyo.Message[In]) (A, error)

	value A
	n     int
	size  int
}

// room is called if there is a MaxSize.
func (r *reduction[In, A]) room(m arroyo.Message[In]) reason {
	if r.size+r.limits.of(m) > r.limits.size {
		return bySize
	}
	return ""
}

func (r *reduction[In, A]) add(_ context.Context, m arroyo.Message[In]) error {
	if r.n == 0 {
		r.value = r.initial()
	}
	value, err := r.fold(r.value, m)
	if err != nil {
		return err
	}
	r.value = value
	r.n++
	if r.limits.of != nil {
		r.size += r.limits.of(m)
	}
	return nil
}

func (r *reduction[In, A]) ready() reason {
	switch {
	case r.n == r.limits.count:
		return byCount
	case r.limits.of != nil && r.size >= r.limits.size:
		return bySize
	}
	return ""
}

func (r *reduction[In, A]) result() (value A, ok bool) {
	value = r.value
	var none A
	r.value, r.n, r.size = none, 0, 0
	return value, true
}
