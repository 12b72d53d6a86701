package arroyo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// letters delivers dead letters, on a goroutine of its own because a producer
// may block. It is told of rejections from any goroutine.
//
// A rejected record stays in flight until its letter is delivered. So the
// bound of what is in flight bounds what waits here.
type letters struct {
	policy DeadLetterPolicy
	group  string
	log    *slog.Logger
	wake   func()               // of the run loop
	failed func(*letter, error) // under DeadLetterStop
	signal chan struct{}        // something is to be sent

	mu        sync.Mutex
	fresh     []*letter        // rejected, and not looked at by the run loop
	queue     []*letter        // to be sent
	retry     []*letter        // to be sent again, before these
	flying    map[*letter]bool // that were given to the producer
	stopped   bool             // what is not sent is not sent any more
	failure   error            // what letters fail with now
	failing   *letter          // one of those that do
	pause     time.Duration    // before the next attempt
	paused    bool             // an attempt was made after that pause
	delivered int64
}

func newLetters(policy DeadLetterPolicy, group string, log *slog.Logger, wake func(), failed func(*letter, error)) *letters {
	return &letters{
		policy: policy,
		group:  group,
		log:    log.With("dead_letter_topic", policy.Topic),
		wake:   wake,
		failed: failed,
		signal: make(chan struct{}, 1),
		flying: make(map[*letter]bool),
	}
}

type letter struct {
	slot  slot
	step  string
	err   error     // why the message was rejected
	since time.Time // it was given to the producer
}

const (
	minLetterPause = 100 * time.Millisecond
	maxLetterPause = 10 * time.Second
)

// rejected takes a rejection. It never blocks.
func (l *letters) rejected(s *span, index int, err error) {
	step := s.owner.lane.stepName()
	if located := (*StepError)(nil); errors.As(err, &located) {
		step, err = located.Step, located.Err
	}
	s.owner.undelivered.Add(1)
	l.mu.Lock()
	l.fresh = append(l.fresh, &letter{slot: slot{s, uint8(index)}, step: step, err: err})
	first := len(l.fresh) == 1
	l.mu.Unlock()
	if first {
		l.wake()
	}
}

// takeFresh returns what was rejected since the last call.
func (l *letters) takeFresh() []*letter {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.fresh
	l.fresh = nil
	return fresh
}

// send queues letters.
func (l *letters) send(ls []*letter) {
	if len(ls) == 0 {
		return
	}
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		retract(ls)
		return
	}
	l.queue = append(l.queue, ls...)
	l.mu.Unlock()
	l.tell()
}

func (l *letters) tell() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// serve is the goroutine.
func (l *letters) serve(ctx context.Context) {
	for {
		next, pause := l.next()
		switch {
		case next == nil:
			select {
			case <-l.signal:
			case <-ctx.Done():
				return
			}
			continue
		case pause > 0:
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
		if next.slot.span.owner.state.fenced.Load() {
			l.land(next) // its next owner finds it again
			continue
		}
		l.policy.Producer.Produce(ctx, l.record(next), func(_ *kgo.Record, err error) {
			switch {
			case err == nil:
				l.deliver(next)
			case ctx.Err() == nil: // else the run has ended
				l.fail(next, err)
			}
		})
		if ctx.Err() != nil {
			return
		}
	}
}

// next takes the next letter, and says how long to wait before it is sent.
func (l *letters) next() (next *letter, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := &l.retry
	if len(*from) == 0 {
		from = &l.queue
	}
	if len(*from) == 0 {
		return nil, 0
	}
	next, (*from)[0] = (*from)[0], nil
	if *from = (*from)[1:]; len(*from) == 0 {
		*from = nil
	}
	next.since = time.Now().Add(l.pause)
	l.flying[next] = true
	l.paused = l.pause > 0
	return next, l.pause
}

func (l *letters) record(next *letter) *kgo.Record {
	r := next.slot.span.records[next.slot.index]
	return newLetter(l.policy.Topic, r, DeadLetterOrigin{
		Partition: next.slot.span.owner.state.Partition,
		Offset:    r.Offset,
		Timestamp: r.Timestamp,
		Group:     l.group,
		Time:      time.Now(),
		Step:      next.step,
		Reason:    reasonOf(next.err),
	})
}

// reasonOf is an error's text without what the other headers say.
func reasonOf(err error) string {
	if invalid, ok := err.(*InvalidError); ok && invalid.Err != nil {
		err = invalid.Err
	}
	return errorText(err)
}

// land takes a letter out of those that are with the producer. It reports
// false if it is none of them: it was given up.
func (l *letters) land(next *letter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.flying[next]
	delete(l.flying, next)
	return was
}

func (l *letters) deliver(next *letter) {
	if !l.land(next) {
		return
	}
	l.mu.Lock()
	l.delivered++
	failed := l.failure != nil
	l.failure, l.failing, l.pause = nil, nil, 0
	l.mu.Unlock()
	if failed {
		l.log.Info("dead letters are delivered again")
	}
	next.slot.span.delivered(next.slot.index)
}

// fail is for a letter that the producer gave back.
func (l *letters) fail(next *letter, err error) {
	if !l.land(next) {
		return
	}
	l.mu.Lock()
	switch {
	case l.pause == 0:
		l.pause = minLetterPause
	case l.paused:
		l.pause = min(2*l.pause, maxLetterPause)
		l.paused = false
	}
	l.retry = append(l.retry, next)
	l.mu.Unlock()
	l.troubled(next, err)
	l.tell()
}

// troubled says, once per change of state, that letters are not delivered.
func (l *letters) troubled(next *letter, err error) {
	l.mu.Lock()
	first := l.failure == nil
	l.failure, l.failing = err, next
	l.mu.Unlock()
	if !first {
		return
	}
	e := next.slot.span.owner.state.Epoch
	l.log.Warn("dead letters cannot be delivered; commits wait for them",
		append(epochAttrs(e), "offset", next.slot.span.records[next.slot.index].Offset, "step", next.step, "error", err)...)
	if l.policy.OnFailure == DeadLetterStop {
		l.failed(next, err)
	}
}

// check looks for letters that nobody has acked for too long: a producer goes
// on trying without a word while no broker answers.
func (l *letters) check(now time.Time) {
	l.mu.Lock()
	var oldest *letter
	for next := range l.flying {
		if oldest == nil || next.since.Before(oldest.since) {
			oldest = next
		}
	}
	l.mu.Unlock()
	if oldest != nil && now.Sub(oldest.since) > l.policy.Timeout {
		l.troubled(oldest, ErrDeadLetterTimeout)
	}
}

// stop gives all letters up: their messages are left to the next owner.
func (l *letters) stop() {
	l.mu.Lock()
	l.stopped = true
	left := slices.Concat(l.fresh, l.retry, l.queue, slices.Collect(maps.Keys(l.flying)))
	l.fresh, l.retry, l.queue = nil, nil, nil
	clear(l.flying)
	l.mu.Unlock()
	retract(left)
}

func retract(ls []*letter) {
	for _, next := range ls {
		next.slot.span.retract(next.slot.index)
	}
}

// trouble returns what letters fail with now, and one of those that do.
func (l *letters) trouble() (*letter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing, l.failure
}

// status tells of letters: delivered, not delivered, and what they fail with.
func (l *letters) status() DeadLetterStatus {
	if l == nil {
		return DeadLetterStatus{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return DeadLetterStatus{
		Delivered: l.delivered,
		Pending:   len(l.fresh) + len(l.retry) + len(l.queue) + len(l.flying),
		Err:       l.failure,
	}
}
