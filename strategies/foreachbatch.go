package strategies

import (
	"context"
	"slices"
	"time"

	"github.com/arroyo-go/arroyo"
)

// ForEachBatch ends a pipeline: it collects as Batch does, calls f with each
// batch, and acks the members that are not settled when f is done with them.
// The slice belongs to f.
//
// f settles rows itself where they differ: rows[i].Reject(err). An
// arroyo.Invalid that f returns rejects, and an arroyo.Drop acks, all rows
// that are not settled. Any other error, or a panic, ends the run.
//
// With a Retry, f is called again with the rows that are not settled.
func ForEachBatch[T any](size int, wait time.Duration, f func(context.Context, []arroyo.Message[T]) error, opts ...Option) arroyo.Strategy[T] {
	require("ForEachBatch", "the function is nil", f != nil)
	s := &forEachBatch[T]{config: configure("ForEachBatch", f, opts), f: f, task: asTask(f)}
	s.collector = newCollector("ForEachBatch", s.config, size, wait, s.call)
	return s
}

type forEachBatch[T any] struct {
	*collector[T]
	config *config
	f      func(context.Context, []arroyo.Message[T]) error
	task   func(context.Context, []arroyo.Message[T]) (struct{}, error)
}

func (s *forEachBatch[T]) call(ctx context.Context, rows []arroyo.Message[T]) (err error) {
	step := s.config.step
	step.Enter(ctx, 0) // the collector counted them
	first := rows[0]
	defer func() {
		if v := recover(); v != nil {
			err = panicked(step, first, v)
		}
	}()
	// The slice is f's to change, so it does not tell afterwards what was in it.
	all := arroyo.Join(struct{}{}, rows)
	if s.config.simple() {
		err = s.f(ctx, rows)
	} else {
		err = s.try(ctx, rows)
	}
	if err != nil {
		return settleFailed(step, all, err)
	}
	all.Ack()
	return nil
}

// try is the function try for a batch.
func (s *forEachBatch[T]) try(ctx context.Context, rows []arroyo.Message[T]) error {
	a := &s.config.attempts
	if a.retry == nil {
		_, err := once(ctx, a.timeout, rows, s.task)
		return err
	}
	left := slices.Clone(rows) // ours
	over := func() bool {
		left = slices.DeleteFunc(left, arroyo.Message[T].ReturnIfDraining)
		left = arroyo.Unfenced(left)
		return len(left) == 0
	}
	for n := 1; ; n++ {
		if a.isFailing() && over() {
			return errSettled
		}
		if n > 1 || len(left) < len(rows) {
			rows = slices.Clone(left)
		}
		_, err := once(ctx, a.timeout, rows, s.task)
		if err == nil {
			a.succeeded()
			return nil
		}
		if !a.worthMore(err) {
			return err
		}
		// An error of a function that has settled all its rows is not about
		// them; there is nothing to try again.
		if !slices.ContainsFunc(left, func(m arroyo.Message[T]) bool { return !m.Settled() }) {
			return err
		}
		if err := a.failed(ctx, n, err, over); err != nil {
			return err
		}
	}
}

func (s *forEachBatch[T]) Flush(ctx context.Context) error { return s.flush(ctx) }

func (s *forEachBatch[T]) Close(context.Context) error {
	s.drop()
	return nil
}
