package strategies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Queue puts a goroutine and a queue of up to size messages between two steps:
// those in front of it and those behind it work at the same time, each at their
// own pace. It is for a branch of a Route that must not hold up the others, and
// for a pipeline in which two steps need a core each.
//
// Order is kept. Submit blocks while the queue is full, which is backpressure.
// A drain waits for what is queued: the steps in front have worked on it. If
// messages are queued when a drain needs the goroutine in front, more than size
// may be.
func Queue[T any](size int, next arroyo.Strategy[T], opts ...Option) arroyo.Strategy[T] {
	require("Queue", fmt.Sprintf("a size of %d is not positive", size), size > 0)
	require("Queue", "the next step is nil", next != nil)
	s := &queue[T]{
		step:  configure("Queue", nil, opts).step,
		next:  next,
		size:  size,
		jobs:  make(chan func() error, 1),
		room:  make(chan struct{}, 1),
		quiet: make(chan struct{}, 1),
		over:  make(chan struct{}),
	}
	s.job = s.work
	return s
}

type queue[T any] struct {
	step   *arroyo.Step
	next   arroyo.Strategy[T]
	size   int
	lane   *arroyo.Lane // in front
	fork   *arroyo.Lane // behind
	drains <-chan struct{}

	jobs  chan func() error
	job   func() error  // work, in jobs while there is something to do
	room  chan struct{} // a token when something was taken
	quiet chan struct{} // a token when nothing is left to do
	over  chan struct{} // closed when the goroutine calls the next step no more

	mu     sync.Mutex
	items  []queued[T]
	first  int  // of items
	n      int  // messages in items
	busy   bool // the goroutine works on an item
	closed bool // jobs is
	ended  bool // over is
	failed bool // the goroutine did
	left   bool // the goroutine has to close the next step
}

// queued is some messages, or a flush if there are none.
type queued[T any] struct {
	ctx  context.Context
	msgs []arroyo.Message[T]
}

func (s *queue[T]) start(ctx context.Context) {
	if s.lane != nil {
		return
	}
	s.lane = arroyo.LaneOf(ctx)
	s.fork = s.lane.Fork()
	s.drains = arroyo.Draining(s.lane.Context())
	s.lane.Go(s.serve)
}

func (s *queue[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	s.step.Enter(ctx, len(msgs))
	s.start(ctx)
	msgs = slices.Clone(msgs)
	for len(msgs) > 0 {
		msgs = msgs[s.put(ctx, msgs, false):]
		if len(msgs) == 0 {
			break
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return nil
		case <-s.drains:
			// The lane is wanted. The channel is from before, so a drain
			// that began when this Submit did is not missed.
			s.drains = arroyo.Draining(s.lane.Context())
			s.put(ctx, msgs, true)
			return nil
		}
	}
	return nil
}

// put queues what there is room for, or all, and returns how many that are.
func (s *queue[T]) put(ctx context.Context, msgs []arroyo.Message[T], all bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n = len(msgs); !all {
		n = min(n, max(0, s.size-s.n))
	}
	if n > 0 {
		s.n += n
		s.add(queued[T]{ctx, msgs[:n:n]})
	}
	return n
}

// add is called with the mutex held.
func (s *queue[T]) add(q queued[T]) {
	s.items = append(s.items, q)
	s.kick()
}

// kick makes the goroutine look. The mutex is held.
func (s *queue[T]) kick() {
	if s.closed {
		return
	}
	select {
	case s.jobs <- s.job:
	default:
	}
}

// serve is the goroutine.
func (s *queue[T]) serve(context.Context) (err error) {
	failed := true // or it panicked
	defer func() {
		s.mu.Lock()
		s.ended, s.failed = true, failed
		left := s.left
		s.mu.Unlock()
		close(s.over)
		if left {
			err = errors.Join(err, s.next.Close(s.fork.Context()))
		}
	}()
	err = s.fork.Serve(s.jobs)
	failed = err != nil
	return err
}

// work gives one item to the next step.
func (s *queue[T]) work() error {
	q, ok := s.take()
	if !ok {
		return nil
	}
	err := s.handOn(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	if s.first < len(s.items) {
		s.kick()
	} else {
		signal(s.quiet)
	}
	return err
}

func (s *queue[T]) take() (q queued[T], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.first == len(s.items) {
		return q, false
	}
	q = s.items[s.first]
	s.items[s.first] = queued[T]{}
	if s.first++; s.first > len(s.items)/2 {
		n := copy(s.items, s.items[s.first:])
		clear(s.items[n:])
		s.items, s.first = s.items[:n], 0
	}
	s.n -= len(q.msgs)
	s.busy = true
	signal(s.room)
	return q, true
}

func (s *queue[T]) handOn(q queued[T]) error {
	ctx := s.fork.In(q.ctx)
	if len(q.msgs) == 0 {
		return s.next.Flush(ctx)
	}
	msgs := arroyo.Unfenced(q.msgs)
	if len(msgs) == 0 || ctx.Err() != nil {
		return nil
	}
	err := s.next.Submit(ctx, msgs)
	if err != nil && isFenced(ctx, s.lane) && !isPanic(err) {
		return nil
	}
	return err
}

// Flush queues the flush.
func (s *queue[T]) Flush(ctx context.Context) error {
	s.start(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(queued[T]{ctx: ctx})
	return nil
}

// closeGrace is what the next step gets to return once its context has ended.
const closeGrace = 10 * time.Millisecond

// Close waits until nothing is queued, if ctx lasts. If it ends, or has ended,
// and the goroutine is still inside the next step, that is closed when it
// returns.
func (s *queue[T]) Close(ctx context.Context) error {
	if s.lane == nil {
		return s.next.Close(ctx)
	}
	s.step.Enter(ctx, 0)
	for s.works() {
		select {
		case <-s.quiet:
			continue
		case <-s.over:
		case <-ctx.Done():
		}
		break
	}
	s.mu.Lock()
	s.closed = true
	close(s.jobs)
	s.mu.Unlock()
	select {
	case <-s.over:
	case <-ctx.Done():
		waitFor(s.over, closeGrace)
	}
	s.mu.Lock()
	s.left = !s.ended
	left, failed := s.left, s.failed
	s.mu.Unlock()
	if left {
		return nil
	}
	if failed { // the lane's context is about to end, too
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		cancel(arroyo.ErrAbandoned)
	}
	return s.next.Close(s.fork.In(ctx))
}

// works reports whether something is left to do.
func (s *queue[T]) works() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy || s.first < len(s.items)
}

// signal puts a token into a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// waitFor waits until c is closed, at most for d.
func waitFor(c <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
	}
}
