package strategytest

import (
	"context"
	"sync"

	"github.com/arroyo-go/arroyo"
)

// worker works on each message on a goroutine of its own, and hands on in any
// order. It is well made, but for what is replaced.
type worker struct {
	next strategy
	fork *arroyo.Lane
	jobs chan func() error // of the fork
	done chan struct{}
	room chan struct{} // a token for each message
	work sync.WaitGroup

	mu      sync.Mutex
	busy    map[arroyo.Epoch]int // messages that are not handed on
	flushes []context.Context    // that wait for them

	waitsForAll bool
}

func working(change func(*worker)) func(strategy) strategy {
	return func(next strategy) strategy {
		w := &worker{next: next, busy: make(map[arroyo.Epoch]int)}
		change(w)
		return w
	}
}

func (w *worker) start(ctx context.Context) *arroyo.Lane {
	lane := arroyo.LaneOf(ctx)
	if w.fork == nil {
		w.fork = lane.Fork()
		w.jobs = make(chan func() error)
		w.done = make(chan struct{})
		w.room = make(chan struct{}, 100)
		lane.Go(func(context.Context) error {
			defer close(w.done)
			return w.fork.Serve(w.jobs)
		})
	}
	return lane
}

func (w *worker) Submit(ctx context.Context, msgs messages) error {
	lane := w.start(ctx)
	for _, m := range msgs {
		select {
		case w.room <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		w.mu.Lock()
		w.busy[m.Epoch()]++
		w.mu.Unlock()
		w.work.Add(1)
		lane.Go(func(laneCtx context.Context) error {
			defer w.work.Done()
			err := Work(ctx, m)
			return w.put(laneCtx, func() error { return w.handOn(ctx, m, err) })
		})
	}
	return nil
}

func (w *worker) put(ctx context.Context, job func() error) error {
	select {
	case w.jobs <- job:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// handOn runs on the fork, as what it calls does.
func (w *worker) handOn(ctx context.Context, m arroyo.Message[int], err error) error {
	<-w.room
	if err == nil && !m.Fenced() {
		err = w.next.Submit(w.fork.In(ctx), messages{m})
	}
	if err != nil && !m.Fenced() {
		return err
	}
	w.mu.Lock()
	w.busy[m.Epoch()]--
	w.mu.Unlock()
	return w.flush()
}

func (w *worker) Flush(ctx context.Context) error {
	w.start(ctx)
	return w.put(ctx, func() error {
		w.flushes = append(w.flushes, ctx)
		return w.flush()
	})
}

// flush passes on what need wait no longer.
func (w *worker) flush() error {
	for len(w.flushes) > 0 && w.isFree(w.flushes[0]) {
		ctx := w.flushes[0]
		w.flushes = w.flushes[1:]
		if err := w.next.Flush(w.fork.In(ctx)); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) isFree(ctx context.Context) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	of := arroyo.FlushOf(ctx)
	for e, n := range w.busy {
		if n > 0 && (w.waitsForAll || of(e)) {
			return false
		}
	}
	return true
}

func (w *worker) Close(ctx context.Context) error {
	w.start(ctx)
	w.work.Wait()
	close(w.jobs)
	<-w.done
	return w.next.Close(ctx)
}
