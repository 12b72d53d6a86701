package arroyo

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Lane is a bounded queue, the goroutine that empties it, and the steps that
// this goroutine runs. A step reaches its lane with LaneOf.
type Lane struct {
	first Strategy[*kgo.Record]
	run   *tracker

	ctx     context.Context // outlives epochs; ends when the lane is abandoned
	abandon context.CancelCauseFunc
	wake    chan struct{}
	done    chan struct{} // closed when the goroutine and its helpers have ended
	helpers goroutines
	step    atomic.Pointer[string] // the step that works now, or did last

	mu     sync.Mutex
	queue  []*span // not submitted yet, oldest first
	head   int     // of queue
	taken  int     // messages of the head that were submitted
	due    []*laneTimer
	flush  bool
	finish bool
	idle   bool
	err    error // why the lane ended, if not because it was told to

	// Of the lane's goroutine.
	msgs  []Message[*kgo.Record]
	chunk int
}

type laneKey struct{}

// LaneOf returns the lane that runs the step to which ctx was passed. It
// panics if there is none: then the step is not run by a processor.
func LaneOf(ctx context.Context) *Lane {
	l, ok := ctx.Value(laneKey{}).(*Lane)
	if !ok {
		panic("arroyo: LaneOf: this context is not one that a processor passes to a step's methods")
	}
	return l
}

// Context returns the lane's context. It outlives epochs, so steps that mix
// partitions work under it, and ends when the lane's work is abandoned.
func (l *Lane) Context() context.Context { return l.ctx }

// At says which step works from here on. Logs and errors name it, so a step
// says it before it calls user code. The name is kept, not copied.
func (l *Lane) At(step *string) { l.step.Store(step) }

// After runs f on the lane's goroutine once d has passed, not before what that
// goroutine does then is done. It does not run after stop, nor after the lane
// has ended. Its error or panic counts as Submit's. After and stop are called
// on the lane's goroutine.
func (l *Lane) After(d time.Duration, f func(context.Context) error) (stop func()) {
	t := &laneTimer{run: f}
	t.timer = time.AfterFunc(d, func() {
		l.mu.Lock()
		l.due = append(l.due, t)
		l.mu.Unlock()
		l.signal()
	})
	return func() {
		t.stopped = true
		t.timer.Stop()
	}
}

type laneTimer struct {
	run     func(context.Context) error
	timer   *time.Timer
	stopped bool // only the lane's goroutine touches it
}

// Go runs f on a goroutine that the lane owns: the run ends with its error or
// panic, and the lane ends after it. It has to return when ctx ends.
func (l *Lane) Go(f func(ctx context.Context) error) {
	l.helpers.start(func() {
		if err := l.guard(func() error { return f(l.ctx) }); err != nil && l.ctx.Err() == nil {
			l.fail(err)
		}
	})
}

func newLane(first Strategy[*kgo.Record], run *tracker) *Lane {
	l := &Lane{
		first: first,
		run:   run,
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
		chunk: 1,
	}
	l.ctx, l.abandon = context.WithCancelCause(context.WithValue(context.Background(), laneKey{}, l))
	return l
}

// enqueue adds spans to what is to be submitted.
func (l *Lane) enqueue(spans []span) {
	l.mu.Lock()
	for i := range spans {
		l.queue = append(l.queue, &spans[i])
	}
	if l.head > len(l.queue)/2 {
		n := copy(l.queue, l.queue[l.head:])
		clear(l.queue[n:])
		l.queue, l.head = l.queue[:n], 0
	}
	l.idle = false
	l.mu.Unlock()
	l.signal()
}

// dropQueued returns what of some epochs is queued and was never submitted:
// the next owner reads it.
func (l *Lane) dropQueued(of func(*progress) bool) {
	l.mu.Lock()
	dropped := make([]*span, 0, len(l.queue)-l.head)
	kept := l.queue[:0]
	taken := 0
	for i, s := range l.queue[l.head:] {
		switch {
		case of(s.owner):
			dropped = append(dropped, s)
			if i == 0 && l.taken > 0 {
				// The others of this span are being worked on.
				s.giveBack(s.full &^ (1<<l.taken - 1))
				dropped = dropped[:0]
			}
		default:
			if i == 0 {
				taken = l.taken
			}
			kept = append(kept, s)
		}
	}
	clear(l.queue[len(kept):])
	l.queue, l.head, l.taken = kept, 0, taken
	l.mu.Unlock()
	for _, s := range dropped {
		s.giveBack(s.full)
	}
}

// requestFlush makes the lane flush its steps, ahead of its queue.
func (l *Lane) requestFlush() {
	l.mu.Lock()
	l.flush = true
	l.idle = false
	l.mu.Unlock()
	l.signal()
}

// requestFinish makes the lane flush and close its steps and end.
func (l *Lane) requestFinish() {
	l.mu.Lock()
	l.finish = true
	l.mu.Unlock()
	l.signal()
}

// isIdle reports whether the lane has nothing to do and waits.
func (l *Lane) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle
}

// failure returns why the lane ended.
func (l *Lane) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *Lane) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// stepName returns the name of the step that works, or did last.
func (l *Lane) stepName() string {
	if name := l.step.Load(); name != nil {
		return *name
	}
	return "pipeline"
}

func (l *Lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Lane) fail(err error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.abandon(ErrAbandoned)
	l.signal()
	l.run.wake()
}

// serve is the lane's goroutine.
func (l *Lane) serve() {
	defer l.run.wake()
	defer close(l.done)
	clean := l.work()
	ctx := l.ctx
	if !clean {
		l.abandon(ErrAbandoned)
	}
	if err := l.guard(func() error { return l.first.Close(ctx) }); err != nil && clean {
		l.fail(l.located(err, nil))
	}
	l.abandon(nil)
	l.helpers.wait()
}

// work runs until the lane has flushed its steps for the last time (true) or
// has failed or was abandoned.
func (l *Lane) work() bool {
	for {
		if l.ctx.Err() != nil {
			return false
		}
		job, timer := l.next()
		var (
			err   error
			about *span
		)
		switch job {
		case jobTimer:
			if !timer.stopped {
				err = l.guard(func() error { return timer.run(l.ctx) })
			}
		case jobFlush, jobFinish:
			err = l.guard(func() error { return l.first.Flush(l.ctx) })
		case jobSubmit:
			about = l.msgs[0].span
			err = l.submit(about.owner)
		case jobWait:
			select {
			case <-l.wake:
			case <-l.ctx.Done():
			}
		}
		if err != nil {
			if l.ctx.Err() == nil || isPanic(err) {
				l.fail(l.located(err, about))
			} // else it does as it was told
			return false
		}
		if job == jobFinish {
			return true
		}
	}
}

type job int

const (
	jobWait job = iota
	jobTimer
	jobFlush
	jobSubmit
	jobFinish
)

// next takes what is to be done next.
func (l *Lane) next() (job, *laneTimer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = false
	switch {
	case len(l.due) > 0:
		t := l.due[0]
		l.due = l.due[1:]
		return jobTimer, t
	case l.flush:
		l.flush = false
		return jobFlush, nil
	case l.fillChunk():
		return jobSubmit, nil
	case l.finish:
		return jobFinish, nil
	}
	l.idle = true
	if l.run.watched.Load() {
		l.run.wake()
	}
	return jobWait, nil
}

// fillChunk makes the messages of the next Submit: records of one epoch, at
// most chunk of them. It reports false if nothing is queued.
func (l *Lane) fillChunk() bool {
	msgs := l.msgs[:0]
	for l.head < len(l.queue) && len(msgs) < l.chunk {
		s := l.queue[l.head]
		if len(msgs) > 0 && msgs[0].span.owner != s.owner {
			break
		}
		end := min(len(s.records), l.taken+l.chunk-len(msgs))
		if !s.owner.state.fenced.Load() {
			n := len(msgs)
			msgs = slices.Grow(msgs, end-l.taken)[:n+end-l.taken]
			var markers uint64
			for i, r := range s.records[l.taken:end] {
				if r.Attrs.IsControl() { // a transaction's; nobody's work
					markers |= 1 << (l.taken + i)
					continue
				}
				msgs[n] = Message[*kgo.Record]{Payload: r, span: s, index: uint8(l.taken + i)}
				n++
			}
			msgs = msgs[:n]
			if markers != 0 {
				s.ack(markers)
			}
		}
		l.taken = end
		if end == len(s.records) {
			l.queue[l.head] = nil
			l.head++
			l.taken = 0
		}
	}
	if l.head == len(l.queue) {
		l.queue, l.head = l.queue[:0], 0
	}
	// What the last chunk had more is not kept alive.
	if len(msgs) < len(l.msgs) {
		clear(l.msgs[len(msgs):])
	}
	l.msgs = msgs
	return len(msgs) > 0
}

const (
	maxChunk = 1024
	// A Submit should take about this long: short enough for a revoke to
	// find most of a queue not begun, long enough to cost nothing.
	minSubmit = time.Millisecond
	maxSubmit = 20 * time.Millisecond
)

// submit hands a chunk to the first step, and makes the next one larger or
// smaller by the time that this took.
func (l *Lane) submit(of *progress) error {
	began := time.Now()
	err := l.guard(func() error { return l.first.Submit(of.ctx, l.msgs) })
	switch took := time.Since(began); {
	case took > maxSubmit:
		l.chunk = max(1, int(int64(len(l.msgs))*int64(maxSubmit)/int64(took)))
	case took < minSubmit && len(l.msgs) == l.chunk:
		l.chunk = min(2*l.chunk, maxChunk)
	}
	if err != nil && of.state.fenced.Load() && !isPanic(err) {
		return nil
	}
	return err
}

// guard calls user code and makes an error of its panic.
func (l *Lane) guard(f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		} else if !returned {
			l.fail(l.located(errGoexit, nil)) // this goroutine is ending
		}
	}()
	err = f()
	returned = true
	return err
}

var errGoexit = errors.New("runtime.Goexit was called (a t.Fatal, say)")

func isPanic(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// located says where an error happened, as far as the step did not.
func (l *Lane) located(err error, about *span) error {
	var located *StepError
	if errors.As(err, &located) {
		return err
	}
	located = &StepError{Step: l.stepName(), Offset: -1, Err: err}
	if about != nil {
		located.Epoch = about.owner.state.Epoch
		located.Offset = about.records[0].Offset
	}
	return located
}
