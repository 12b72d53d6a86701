package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// RunTask calls task with each message and hands its result on, both in the
// order of the messages and on one goroutine.
//
// task says with its error what becomes of the message: arroyo.Invalid rejects
// it, arroyo.Drop acks it and hands nothing on, and any other error, or a
// panic, ends the run.
func RunTask[In, Out any](task func(context.Context, arroyo.Message[In]) (Out, error), next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	require("RunTask", "the task is nil", task != nil)
	require("RunTask", "the next step is nil", next != nil)
	return &runTask[In, Out]{
		config: configure("RunTask", task, opts),
		task:   task,
		next:   next,
	}
}

type runTask[In, Out any] struct {
	*config
	task func(context.Context, arroyo.Message[In]) (Out, error)
	next arroyo.Strategy[Out]
	out  []arroyo.Message[Out] // kept for its memory
}

func (s *runTask[In, Out]) Submit(ctx context.Context, msgs []arroyo.Message[In]) error {
	s.step.Enter(ctx, len(msgs))
	if cap(s.out) < len(msgs) {
		s.out = make([]arroyo.Message[Out], len(msgs))
	}
	out, err := s.tasks(ctx, msgs, s.out[:len(msgs)])
	if err == nil && len(out) > 0 {
		err = s.next.Submit(ctx, out)
	}
	clear(out) // the payloads are not ours to keep alive
	return err
}

func (s *runTask[In, Out]) tasks(ctx context.Context, msgs []arroyo.Message[In], out []arroyo.Message[Out]) (done []arroyo.Message[Out], err error) {
	at := 0
	defer func() {
		if v := recover(); v != nil {
			done, err = nil, panicked(s.step, msgs[at], v)
		}
	}()
	return s.each(ctx, msgs, out, &at)
}

// each is apart from what recovers, so that what it counts stays in registers.
func (s *runTask[In, Out]) each(ctx context.Context, msgs []arroyo.Message[In], out []arroyo.Message[Out], at *int) ([]arroyo.Message[Out], error) {
	n, task, simple := 0, s.task, s.simple()
	for i := range msgs {
		*at = i
		m := &msgs[i]
		if m.Fenced() {
			continue
		}
		var (
			result Out
			err    error
		)
		if simple {
			result, err = task(ctx, *m)
		} else {
			result, err = try(ctx, &s.attempts, *m, task)
		}
		if err != nil {
			if err := settleFailed(s.step, *m, err); err != nil {
				return nil, err
			}
			continue
		}
		out[n] = arroyo.With(*m, result)
		n++
	}
	return out[:n], nil
}

func (s *runTask[In, Out]) Flush(ctx context.Context) error { return s.next.Flush(ctx) }

func (s *runTask[In, Out]) Close(ctx context.Context) error { return s.next.Close(ctx) }
