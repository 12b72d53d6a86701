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
	c := configure("RunTask", task, opts)
	return &runTask[In, Out]{config: c, task: attempted(&c.attempts, task), next: next}
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
	from, at, n := 0, 0, 0 // at counts from from
	defer func() {
		if v := recover(); v != nil {
			done, err = nil, panicked(s.step, msgs[from+at], v)
		}
	}()
	for from < len(msgs) {
		did, err := results(ctx, s.task, msgs[from:], out[n:], &at)
		n += did
		if err != nil {
			if err := settleFailed(s.step, msgs[from+did], err); err != nil {
				return nil, err
			}
		}
		from += did + 1
	}
	return out[:n], nil
}

// results calls task up to the first message that has no result, because it is
// fenced or its task failed, and returns how many have one. at is the message
// that it is at. It is all that is done for nearly every message, so it is apart
// from the rest: the fewer variables a loop has, the less is saved around its
// calls, and that is most of what it costs.
func results[In, Out any](ctx context.Context, task func(context.Context, arroyo.Message[In]) (Out, error), msgs []arroyo.Message[In], out []arroyo.Message[Out], at *int) (int, error) {
	out = out[:len(msgs)]
	for i := range msgs {
		*at = i
		m := msgs[i]
		if m.Fenced() {
			return i, nil
		}
		result, err := task(ctx, m)
		if err != nil {
			return i, err
		}
		out[i] = arroyo.With(m, result)
	}
	return len(msgs), nil
}

func (s *runTask[In, Out]) Flush(ctx context.Context) error { return s.next.Flush(ctx) }

func (s *runTask[In, Out]) Close(ctx context.Context) error { return s.next.Close(ctx) }
