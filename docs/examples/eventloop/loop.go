package main

import (
	"context"
	"log"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Handle is what is done with each record: in order within a partition, and for
// several partitions at the same time. Its context ends when the partition is
// lost.
type Handle func(context.Context, *kgo.Record) error

// loop handles records until ctx ends or a record fails. It owns the consumer.
func loop(ctx context.Context, consumer *arroyo.Consumer, handle Handle) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // the first one counts
		}
		stop()
	}

	workers := make(map[arroyo.Epoch]*worker)
	for ev := range consumer.Events(ctx) { // when ctx ends, it asks for everything back
		switch ev := ev.(type) {
		case *arroyo.Assigned:
			maps.DeleteFunc(workers, func(_ arroyo.Epoch, w *worker) bool { return w.isOver() })
			for _, e := range ev.Epochs {
				workers[e] = startWorker(consumer, e, handle, fail)
			}
		case *arroyo.Fetched:
			workers[ev.Epoch].put(ev)
		case *arroyo.Revoked:
			// These are asked to come to an end, and the others go on.
			release := ev.Hold()
			var leaving []*worker
			for _, e := range ev.Epochs {
				workers[e].leave()
				leaving = append(leaving, workers[e])
			}
			go finish(leaving, ev.Deadline, release)
		case *arroyo.Lost:
			// Of those that are leaving, too: what was revoked may still be lost.
			for _, e := range ev.Epochs {
				workers[e].giveUp()
			}
		case *arroyo.Failed:
			if ev.Fatal {
				fail(ev.Err)
			} else {
				log.Print(ev.Err) // the consumer goes on trying
			}
		}
	}
	for _, w := range workers {
		w.giveUp() // those that are not over
		w.wait()
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// finish releases partitions when their workers are over. At the deadline the
// partitions are no longer ours, so those that work still give up.
func finish(leaving []*worker, deadline time.Time, release func()) {
	late := time.AfterFunc(time.Until(deadline), func() {
		for _, w := range leaving {
			w.giveUp()
		}
	})
	defer late.Stop()
	for _, w := range leaving {
		w.wait()
	}
	release()
}
