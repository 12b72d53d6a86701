package arroyo

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordLane is a Lane with a queue of records, which its goroutine hands to
// the first step. What bounds the queue is that the run loop stops fetching.
type recordLane struct {
	Lane
	build   func() (Strategy[*kgo.Record], error) // called on the goroutine
	first   Strategy[*kgo.Record]
	watched *atomic.Bool
	owner   atomic.Pointer[progress] // of a lane that serves one epoch
	events  laneEvents
	workers goroutines
	done    chan struct{} // closed when the goroutine and its helpers have ended

	// Under Lane.mu.
	queue  []*span // not submitted yet, oldest first
	head   int     // of queue
	taken  int     // messages of the head that were submitted
	flush  *flushSet
	finish bool
	unmade bool // whether build has still to return
	idle   bool
	wakeAt int   // the loop is woken once no more spans than these are queued; 0: it is not
	err    error // why the lane ended, if not because it was told to

	// Of the lane's goroutine.
	msgs    []Message[*kgo.Record]
	chunk   int
	now     time.Time // when the last Submit returned, if nothing came after it
	fetched byte      // makes the compiler keep the look at values
}

// laneEvents is what a lane tells its run, from any goroutine.
type laneEvents struct {
	wake      func()
	failed    func(error) // called once
	ended     func(*recordLane)
	submitted func(e Epoch, records int, took time.Duration) // may be nil
}

func newRecordLane(watched *atomic.Bool, events laneEvents) *recordLane {
	l := &recordLane{
		watched: watched,
		events:  events,
		done:    make(chan struct{}),
		chunk:   1,
	}
	l.init(context.Background(), l.fail, &l.workers)
	return l
}

// enqueue adds spans to what is to be submitted.
func (l *recordLane) enqueue(spans []span) {
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
func (l *recordLane) dropQueued(of func(*progress) bool) {
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

// requestFlush makes the lane flush its steps, ahead of its queue: of the
// epochs of these, or of all if there are none.
func (l *recordLane) requestFlush(of ...*progress) {
	l.mu.Lock()
	l.flush = l.flush.add(of)
	l.idle = false
	l.mu.Unlock()
	l.drainBegins() // also for a step that blocks the lane
	l.signal()
}

// requestFinish makes the lane flush and close its steps and end. One whose
// pipeline is still being made has nothing to flush and is not waited for.
func (l *recordLane) requestFinish() {
	l.mu.Lock()
	l.finish = true
	unmade := l.unmade
	l.mu.Unlock()
	if unmade {
		l.abandon(ErrFenced)
	}
	l.drainBegins()
	l.signal()
}

// isShort reports whether at most n spans are queued. If not, the loop is woken
// once that is so.
func (l *recordLane) isShort(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeAt = 0
	if len(l.queue)-l.head > n {
		l.wakeAt = n
	}
	return l.wakeAt == 0
}

// isIdle reports whether the lane has nothing to do and waits.
func (l *recordLane) isIdle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.idle
}

// failure returns why the lane ended.
func (l *recordLane) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *recordLane) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *recordLane) fail(err error) {
	l.mu.Lock()
	first := l.err == nil
	if first {
		l.err = err
	}
	l.mu.Unlock()
	l.abandon(ErrAbandoned)
	l.signal()
	if first {
		l.events.failed(err)
	}
}

// serve is the lane's goroutine.
func (l *recordLane) serve() {
	defer l.events.ended(l)
	defer close(l.done)
	if err := l.call(l.open); err != nil {
		if l.ctx.Err() == nil || isPanic(err) {
			l.fail(l.located(err, nil))
		}
		l.abandon(nil)
		l.workers.wait()
		return
	}
	clean := l.work()
	ctx := l.ctx
	if !clean {
		l.abandon(ErrAbandoned)
	}
	if err := l.call(func() error { return l.first.Close(ctx) }); err != nil && clean && (ctx.Err() == nil || isPanic(err)) {
		l.fail(l.located(err, nil))
	}
	l.abandon(nil)
	l.workers.wait()
}

func (l *recordLane) open() (err error) {
	if l.first, err = l.build(); err == nil && l.first == nil {
		err = errNoPipeline
	}
	l.mu.Lock()
	l.unmade = false
	l.mu.Unlock()
	return err
}

var errNoPipeline = errors.New("the function returned no pipeline and no error")

// dismiss ends a lane whose goroutine was never started.
func (l *recordLane) dismiss() {
	l.abandon(ErrFenced)
	close(l.done)
}

// work runs until the lane has flushed its steps for the last time (true) or
// has failed or was abandoned.
func (l *recordLane) work() bool {
	if err := l.call(l.startFirst); err != nil {
		l.fail(l.located(err, nil))
		return false
	}
	for {
		if l.ctx.Err() != nil {
			return false
		}
		job := l.next()
		var (
			err   error
			about *span
		)
		if job.kind != jobSubmit {
			l.now = time.Time{}
		}
		switch job.kind {
		case jobDue:
			err = l.runJob(job.due)
		case jobFlush, jobFinish:
			err = l.call(func() error { return l.first.Flush(job.flush.in(l.ctx)) })
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
		if job.kind == jobFinish {
			return true
		}
	}
}

type job struct {
	kind  jobKind
	due   laneJob
	flush *flushSet
}

type jobKind int

const (
	jobWait jobKind = iota
	jobDue
	jobFlush
	jobSubmit
	jobFinish
)

// next takes what is to be done next.
func (l *recordLane) next() job {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = false
	if due, ok := l.takeJob(); ok {
		return job{kind: jobDue, due: due}
	}
	switch {
	case l.flush != nil:
		flush := l.flush
		l.flush = nil
		return job{kind: jobFlush, flush: flush}
	case l.fillChunk():
		if l.wakeAt > 0 && len(l.queue)-l.head <= l.wakeAt {
			l.wakeAt = 0
			l.events.wake()
		}
		return job{kind: jobSubmit}
	case l.finish:
		return job{kind: jobFinish}
	}
	l.idle = true
	if l.watched.Load() {
		l.events.wake()
	}
	if p := l.owner.Load(); p != nil && p.listens.Load() {
		p.lookAgain()
	}
	return job{kind: jobWait}
}

// fillChunk makes the messages of the next Submit: records of one epoch, at
// most chunk of them. It reports false if nothing is queued.
func (l *recordLane) fillChunk() bool {
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
			markers := uint64(0)
			for at := l.taken; at < end; at++ {
				did := l.fill(msgs[n:], s, at, end)
				n += did
				if at += did; at < end {
					markers |= 1 << at
				}
			}
			msgs = msgs[:n]
			if markers != 0 {
				s.markers.Or(markers)
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

// fill makes messages of a span's records, up to the first control record (a
// transaction's; nobody's work), and returns how many.
//
// Looking at the values here, in a loop that is so short that the processor
// waits for many of them at a time, spares user code from waiting for each.
//
//go:noinline
func (l *recordLane) fill(msgs []Message[*kgo.Record], s *span, at, end int) int {
	var fetched byte
	records := s.records[at:end]
	msgs = msgs[:len(records)]
	for i, r := range records {
		if r.Attrs.IsControl() {
			records = records[:i]
			break
		}
		if len(r.Value) > 0 {
			fetched ^= r.Value[0]
		}
		msgs[i] = Message[*kgo.Record]{Payload: r, span: s, index: uint8(at + i)}
	}
	l.fetched = fetched
	return len(records)
}

const (
	maxChunk = 512
	// A Submit should take about this long: short enough for a revoke to
	// find most of a queue not begun, long enough to cost nothing.
	minSubmit = time.Millisecond
	maxSubmit = 20 * time.Millisecond
)

// submit hands a chunk to the first step, and makes the next one larger or
// smaller by the time that this took.
func (l *recordLane) submit(of *progress) error {
	began := l.now
	if began.IsZero() {
		began = time.Now()
	}
	err := l.call(func() error { return l.first.Submit(of.ctx, l.msgs) })
	l.now = time.Now()
	took := l.now.Sub(began)
	switch {
	case took > maxSubmit:
		l.chunk = max(1, int(int64(len(l.msgs))*int64(maxSubmit)/int64(took)))
	case took < minSubmit && len(l.msgs) == l.chunk:
		l.chunk = min(2*l.chunk, maxChunk)
	}
	if l.events.submitted != nil {
		l.events.submitted(of.state.Epoch, len(l.msgs), took)
	}
	if err != nil && of.state.fenced.Load() && !isPanic(err) {
		return nil
	}
	return err
}
