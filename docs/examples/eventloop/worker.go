package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/arroyo-go/arroyo"
)

// worker handles one assignment of a partition, on a goroutine of its own. It
// has a queue of what was fetched; when that is full the partition is paused, so
// that one that is slow neither fills the memory nor holds up others.
type worker struct {
	consumer *arroyo.Consumer
	epoch    arroyo.Epoch
	handle   Handle
	queue    chan *arroyo.Fetched
	leaving  chan struct{} // closed: finish the record in hand, commit, return
	over     chan struct{} // closed: it has returned
	giveUp   context.CancelFunc

	mu     sync.Mutex
	paused bool
}

func startWorker(consumer *arroyo.Consumer, e arroyo.Epoch, handle Handle, fail func(error)) *worker {
	ctx, giveUp := context.WithCancel(context.Background())
	w := &worker{
		consumer: consumer,
		epoch:    e,
		handle:   handle,
		queue:    make(chan *arroyo.Fetched, 4),
		leaving:  make(chan struct{}),
		over:     make(chan struct{}),
		giveUp:   giveUp,
	}
	go func() {
		defer close(w.over)
		defer giveUp()
		// What fails because the partition was lost is no failure.
		if err := w.work(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, arroyo.ErrFenced) {
			fail(fmt.Errorf("%v: %w", e.Partition, err))
		}
	}()
	return w
}

// put, leave and wait are the loop's.

func (w *worker) put(ev *arroyo.Fetched) {
	select {
	case w.queue <- ev: // there is room, else the partition is paused
	case <-w.over: // it has failed
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == cap(w.queue) && w.consumer.Pause(w.epoch.Partition) == nil {
		w.paused = true
	}
}

func (w *worker) leave() { close(w.leaving) }

func (w *worker) wait() { <-w.over }

func (w *worker) isOver() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// work handles and commits what is put into the queue, until it is asked to
// leave or ctx ends. What is left then is for the partition's next owner.
func (w *worker) work(ctx context.Context) error {
	for !w.isLeaving() && ctx.Err() == nil {
		select {
		case <-w.leaving:
		case <-ctx.Done():
		case ev := <-w.queue:
			w.resume()
			if err := w.fetched(ctx, ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// fetched handles records, and commits what of them is done.
func (w *worker) fetched(ctx context.Context, ev *arroyo.Fetched) (err error) {
	next := ev.Next
	for _, r := range ev.Records {
		if w.isLeaving() || ctx.Err() != nil {
			next = r.Offset
			break
		}
		if err = w.handle(ctx, r); err != nil {
			next = r.Offset // the next run begins with it
			break
		}
	}
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, w.consumer.Commit(ctx, map[arroyo.Epoch]int64{w.epoch: next}))
}

func (w *worker) isLeaving() bool {
	select {
	case <-w.leaving:
		return true
	default:
		return false
	}
}

func (w *worker) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.paused && len(w.queue) <= cap(w.queue)/2 {
		w.paused = false
		w.consumer.Resume(w.epoch.Partition) // if it is not ours any more, never mind
	}
}
