package strategies

import (
	"context"
	"fmt"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Accumulator is the user's own way to put messages together, for Accumulate.
// Its methods are called from one goroutine.
type Accumulator[In, Out any] interface {
	// Add adds a message. Its error says what becomes of the message, as in
	// RunTask: one that is rejected or dropped is not a part of the result.
	Add(ctx context.Context, m arroyo.Message[In]) error

	// Ready reports whether it is time to hand on the result. It is asked
	// after each Add.
	Ready() bool

	// Result returns what to hand on, or false for nothing: then what was
	// added is done with. It is the last call; the next message is added to
	// a new accumulator.
	Result() (Out, bool)
}

// Accumulate adds messages to an accumulator and hands on its result as one
// message that stands for all of them: when the accumulator is ready, when wait
// has passed since the first message, or when the pipeline is flushed as Batch
// is. Then it begins anew with an accumulator from begin. If there is no result,
// its messages are acked.
//
// A verdict on the result is one on every message in it that has none. As in
// Reduce, messages of partitions that are lost meanwhile stay in it.
//
// It panics unless wait is positive.
func Accumulate[A Accumulator[In, Out], In, Out any](wait time.Duration, begin func() A, next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	require("Accumulate", "the function that begins an accumulator is nil", begin != nil)
	require("Accumulate", "the next step is nil", next != nil)
	require("Accumulate", fmt.Sprintf("a wait of %v is not positive", wait), wait > 0)
	a := &accumulation[A, In, Out]{begin: begin}
	// It is named after begin, and what may fail is Add.
	opts = append([]Option{Name(fmt.Sprintf("Accumulate(%s)", funcName(begin)))}, opts...)
	c := configure("Accumulate", a.add, opts)
	return &fold[In, Out]{
		config: c,
		wait:   wait,
		next:   next,
		add:    attempted(&c.attempts, asTask(a.add)),
		ready:  a.ready,
		result: a.result,
	}
}

// accumulation is the accumulator that messages are added to.
type accumulation[A Accumulator[In, Out], In, Out any] struct {
	begin func() A
	now   A
	begun bool
}

func (a *accumulation[A, In, Out]) add(ctx context.Context, m arroyo.Message[In]) error {
	if !a.begun {
		a.now, a.begun = a.begin(), true
	}
	return a.now.Add(ctx, m)
}

func (a *accumulation[A, In, Out]) ready() reason {
	if a.now.Ready() {
		return byReady
	}
	return ""
}

func (a *accumulation[A, In, Out]) result() (Out, bool) {
	now := a.now
	var none A
	a.now, a.begun = none, false
	return now.Result()
}
