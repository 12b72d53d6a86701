package arroyo

import (
	"container/heap"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	minLetterPause = 100 * time.Millisecond
	maxLetterPause = 10 * time.Second
)

// pace is how letters that failed are sent again: one at a time, then more and
// more of them as they are acked, and half as many when they fail. So an outage
// is not answered with everything at once, and letters that made a batch too
// large get by in smaller ones. One that fails though it is alone waits longer
// from attempt to attempt. Letters that did not fail do not wait for those that
// did.
type pace struct {
	window int       // how many may be with the producer at once
	flying int       // how many are
	enough int       // from this window on it grows slowly
	acks   int       // since it grew slowly
	next   time.Time // when the next one may go
	since  time.Time // when the window became smaller
}

func (p *pace) failed(l *letter, now time.Time) {
	switch {
	case p.window == 0:
		p.window, p.enough, p.since = 1, math.MaxInt, now
	case l.given.After(p.since): // else it failed together with others
		p.window, p.since, p.acks = max(1, p.window/2), now, 0
		p.enough = p.window
	}
	if p.window == 1 {
		p.next = now.Add(minLetterPause)
	}
}

func (p *pace) acked() {
	p.next = time.Time{}
	if p.acks++; p.window < p.enough || p.acks >= p.window {
		p.window++
		p.acks = 0
	}
}

// leave is for a letter that is no longer with the producer, or with it for too
// long.
func (p *pace) leave(l *letter) {
	if l.paced {
		l.paced = false
		p.flying--
	}
}

// letterHeap has the letter that is to be sent first at its front.
type letterHeap []*letter

func (h letterHeap) Len() int           { return len(h) }
func (h letterHeap) Less(i, j int) bool { return h[i].again.Before(h[j].again) }
func (h letterHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *letterHeap) Push(x any)        { *h = append(*h, x.(*letter)) }

func (h *letterHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return l
}

// serve is the goroutine.
func (l *letters) serve() {
	defer close(l.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for l.ctx.Err() == nil {
		next, attempt, wait := l.next(time.Now())
		if next != nil {
			if !l.produce(next, attempt) {
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-l.signal:
		case <-timer.C:
		case <-l.ctx.Done():
		}
	}
}

// next takes the next letter, or says how long to wait for one, if nothing
// else happens.
func (l *letters) next(now time.Time) (next *letter, attempt int, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if next, wait = l.take(now); next == nil {
			return nil, 0, wait
		}
		if !next.fenced() {
			next.attempt++
			next.given = now
			l.flying[next] = true
			return next, next.attempt, 0
		}
		l.pace.leave(next)
		delete(l.failing, next)
	}
}

func (l *letters) take(now time.Time) (next *letter, wait time.Duration) {
	wait = time.Hour
	if len(l.retry) > 0 && l.pace.flying < l.pace.window {
		at := l.retry[0].again
		if at.Before(l.pace.next) {
			at = l.pace.next
		}
		if wait = at.Sub(now); wait <= 0 {
			next = heap.Pop(&l.retry).(*letter)
			next.paced = true
			l.pace.flying++
			return next, 0
		}
	}
	if len(l.queue) == 0 {
		return nil, wait
	}
	next, l.queue[0] = l.queue[0], nil
	if l.queue = l.queue[1:]; len(l.queue) == 0 {
		l.queue = nil
	}
	return next, 0
}

// produce gives a letter to the producer. It reports false, and the run ends,
// if that panics.
func (l *letters) produce(next *letter, attempt int) (returned bool) {
	defer func() {
		if v := recover(); v != nil {
			l.failed(next, &PanicError{v, debug.Stack()})
		} else if !returned {
			l.failed(next, errGoexit)
		}
	}()
	l.policy.Producer.Produce(l.ctx, l.record(next), func(_ *kgo.Record, err error) {
		if err == nil {
			l.deliver(next, attempt)
		} else if l.ctx.Err() == nil { // else the run has ended
			l.fail(next, attempt, err)
		}
	})
	return true
}

func (l *letters) record(next *letter) *kgo.Record {
	r := next.slot.span.records[next.slot.index]
	if l.copies { // another attempt may deliver it while the producer still has this one
		r = copyOf(r)
	}
	return newLetter(l.policy.Topic, r, DeadLetterOrigin{
		Partition: next.state().Partition,
		Offset:    r.Offset,
		Timestamp: r.Timestamp,
		Group:     l.group,
		Time:      time.Now(),
		Step:      next.step,
		Reason:    reasonOf(next.err),
	})
}

// land takes a letter back from the producer. It reports false if this attempt
// is over: the letter was given up, or the producer tells twice. letters.mu is
// held.
func (l *letters) land(next *letter, attempt int) bool {
	if !l.flying[next] || next.attempt != attempt {
		return false
	}
	delete(l.flying, next)
	return true
}

func (l *letters) deliver(next *letter, attempt int) {
	l.mu.Lock()
	if !l.land(next, attempt) {
		l.mu.Unlock()
		return
	}
	l.delivered++
	l.acked = time.Now()
	if next.given.After(l.ackedOf) {
		l.ackedOf = next.given
	}
	again := next.attempt > 1
	if again {
		l.pace.leave(next)
		l.pace.acked()
	}
	_, failed := l.failing[next]
	delete(l.failing, next)
	healed := failed && len(l.failing) == 0
	l.mu.Unlock()
	if again {
		l.tell()
	}
	if healed {
		l.log.Info("dead letters are delivered again")
	}
	next.slot.span.delivered(next.slot.index)
}

// fail is for a letter that the producer gave back.
func (l *letters) fail(next *letter, attempt int, err error) {
	now := time.Now()
	l.mu.Lock()
	if !l.land(next, attempt) {
		l.mu.Unlock()
		return
	}
	if next.paced && l.pace.window == 1 {
		next.alone++
	}
	l.pace.leave(next)
	l.pace.failed(next, now)
	next.again = now.Add(min(minLetterPause<<min(next.alone, 10), maxLetterPause))
	heap.Push(&l.retry, next)
	l.mu.Unlock()
	l.tell()
	l.troubled(next, err)
}

// troubled says, once per change of state, that letters are not delivered.
func (l *letters) troubled(next *letter, err error) {
	if next.fenced() {
		return
	}
	l.mu.Lock()
	first := len(l.failing) == 0
	l.failing[next], l.last = err, next
	l.mu.Unlock()
	if first {
		l.log.Warn("dead letters cannot be delivered; commits wait for them",
			append(epochAttrs(next.state().Epoch), "offset", next.offset(), "step", next.step, "error", err)...)
	}
	if l.policy.OnFailure == DeadLetterStop {
		l.failed(next, err)
	}
}

// check looks for letters that nobody has acked for too long: a producer goes
// on trying without a word while no broker answers. It forgets those whose
// messages are no longer ours.
func (l *letters) check(now time.Time) {
	var late *letter
	l.mu.Lock()
	for next := range l.failing {
		if next.fenced() {
			delete(l.failing, next)
		}
	}
	l.retry = slices.DeleteFunc(l.retry, (*letter).fenced)
	heap.Init(&l.retry)
	for next := range l.flying {
		switch {
		case next.fenced():
			delete(l.flying, next)
			l.pace.leave(next)
		case l.isLate(next, now):
			l.pace.leave(next)
			if l.failing[next] == nil && (late == nil || next.given.Before(late.given)) {
				late = next
			}
		}
	}
	l.mu.Unlock()
	l.tell() // others may go instead
	if late != nil {
		l.troubled(late, ErrDeadLetterTimeout)
	}
}

// isLate reports whether a letter that is with the producer is not acked in
// time. While others are acked it is only slow, unless they were given so much
// later. letters.mu is held.
func (l *letters) isLate(next *letter, now time.Time) bool {
	limit := next.given.Add(l.policy.Timeout)
	return now.After(limit) && (now.Sub(l.acked) > l.policy.Timeout || l.ackedOf.After(limit))
}
