package strategies

import (
	"context"
	"errors"
	"slices"

	"github.com/arroyo-go/arroyo"
)

// Flush passes the flush on behind the results of what was submitted before of
// the epochs that it is about, and waits for nothing.
func (s *pool[In, Out]) Flush(ctx context.Context) error {
	if s.workers.lane == nil {
		return s.next.Flush(ctx)
	}
	if !arroyo.AtBound(ctx) {
		if err := s.returnDraining(); err != nil {
			return err
		}
	}
	if err := s.deliver(ctx); err != nil {
		return err
	}
	if s.barrier(&poolFlush[In, Out]{passOn: func() error { return s.next.Flush(ctx) }}, arroyo.FlushOf(ctx)) {
		return nil
	}
	return s.next.Flush(ctx)
}

// returnDraining returns what no worker has begun of epochs that are being
// drained.
func (s *pool[In, Out]) returnDraining() error {
	return s.arrived(s.workers.remove(ref[In, Out].skip))
}

// barrier makes a flush wait for everything that was submitted of these epochs.
// It reports whether there is anything.
func (s *pool[In, Out]) barrier(f *poolFlush[In, Out], of func(arroyo.Epoch) bool) bool {
	for epoch, l := range s.lines {
		if epoch != (arroyo.Epoch{}) && !of(epoch) {
			continue
		}
		if l.now.pending > 0 {
			l.before = append(l.before, l.now)
			l.now = &era[In, Out]{line: l}
		}
		for _, e := range l.before {
			if !e.skipped && !e.of.Fenced() {
				e.flushes = append(e.flushes, f)
				f.eras = append(f.eras, e)
			}
		}
	}
	f.waits = len(f.eras)
	if f.waits == 0 {
		return false
	}
	s.flushes = append(s.flushes, f)
	for _, e := range f.eras {
		f.stops = append(f.stops, context.AfterFunc(e.ctx, s.workers.poke))
	}
	return true
}

// eraOver is called when nothing of an era is pending, or wanted.
func (s *pool[In, Out]) eraOver(e *era[In, Out]) {
	if e.pending == 0 && e != e.line.now {
		e.line.before = slices.DeleteFunc(e.line.before, func(o *era[In, Out]) bool { return o == e })
	}
	for _, f := range e.flushes {
		if f.waits--; f.waits == 0 {
			s.flushOver(f)
		}
	}
	e.flushes = nil
}

func (s *pool[In, Out]) flushOver(f *poolFlush[In, Out]) {
	for _, stop := range f.stops {
		stop()
	}
	s.flushes = slices.DeleteFunc(s.flushes, func(o *poolFlush[In, Out]) bool { return o == f })
	s.due = append(s.due, f.passOn)
}

// skipFenced makes flushes not wait for epochs that are over.
func (s *pool[In, Out]) skipFenced() {
	if len(s.flushes) == 0 {
		return
	}
	for _, f := range slices.Clone(s.flushes) {
		for _, e := range f.eras {
			if e.pending > 0 && !e.skipped && e.of.Fenced() {
				e.skipped = true
				s.eraOver(e)
			}
		}
	}
}

// Close waits until everything is handed on, if ctx lasts. It does not wait for
// what is fenced, nor for workers in user code when ctx ends: only the lane
// calls the next step, so they are in nobody's way.
func (s *pool[In, Out]) Close(ctx context.Context) error {
	if s.workers.lane == nil {
		return s.next.Close(ctx)
	}
	err := s.finish(ctx)
	s.workers.close()
	for _, f := range s.flushes {
		for _, stop := range f.stops {
			stop()
		}
	}
	if err == nil {
		return s.next.Close(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(arroyo.ErrAbandoned)
	return errors.Join(err, s.next.Close(ctx))
}

func (s *pool[In, Out]) finish(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	nothing := func() error { return nil }
	s.barrier(&poolFlush[In, Out]{passOn: nothing}, func(arroyo.Epoch) bool { return true })
	for ctx.Err() == nil {
		if err := s.deliver(ctx); err != nil {
			return err
		}
		if len(s.flushes) == 0 {
			return nil
		}
		if s.workers.await(true, false) {
			s.step.Enter(ctx, 0)
			select {
			case <-s.workers.ready:
			case <-ctx.Done():
			}
			s.workers.await(false, false)
		}
	}
	return nil
}
