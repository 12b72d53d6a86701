package arroyo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
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
	failed func(*letter, error) // ends the run
	signal chan struct{}        // there is something to do for serve
	copies bool                 // letters are copies, because what is delivered is recycled

	ctx    context.Context // of the producer
	cancel context.CancelFunc
	done   chan struct{} // closed when serve has returned

	mu      sync.Mutex
	fresh   []*letter        // rejected, and not looked at by the run loop
	queue   []*letter        // to be sent
	retry   letterHeap       // that failed, to be sent again
	flying  map[*letter]bool // that were given to the producer
	stopped bool             // what is not sent is not sent any more
	pace    pace             // of what is sent again

	failing   map[*letter]error // those that were not delivered at first
	last      *letter           // of these, the last one that failed
	delivered int64
	acked     time.Time // when a letter was acked last
	ackedOf   time.Time // the latest time at which one that was acked had been given
}

func newLetters(policy DeadLetterPolicy, group string, log *slog.Logger, wake func(), failed func(*letter, error)) *letters {
	l := &letters{
		policy:  policy,
		group:   group,
		log:     log.With("dead_letter_topic", policy.Topic),
		wake:    wake,
		failed:  failed,
		signal:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		flying:  make(map[*letter]bool),
		failing: make(map[*letter]error),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

type letter struct {
	slot slot
	step string
	err  error // why the message was rejected

	// Of its delivery, under letters.mu.
	attempt int
	given   time.Time // to the producer
	alone   int       // attempts that failed though no others did
	again   time.Time // when to make the next one
	paced   bool      // counted by pace
}

func (l *letter) state() *epochState { return l.slot.span.owner.state }

func (l *letter) offset() int64 { return l.slot.offset() }

// fenced reports whether the message's next owner finds it again.
func (l *letter) fenced() bool { return l.state().fenced.Load() }

// rejected takes a rejection. It never blocks.
func (l *letters) rejected(s *span, index int, err error) {
	var step string
	if located := (*StepError)(nil); errors.As(err, &located) {
		step, err = located.Step, located.Err
	} else {
		step = s.owner.lane.stepName()
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

// stop gives all letters up: their messages are left to the next owner.
func (l *letters) stop() {
	l.mu.Lock()
	l.stopped = true
	left := slices.Concat(l.fresh, l.queue, l.retry, slices.Collect(maps.Keys(l.flying)))
	l.fresh, l.queue, l.retry = nil, nil, nil
	clear(l.flying)
	clear(l.failing)
	l.mu.Unlock()
	retract(left)
}

func retract(ls []*letter) {
	for _, next := range ls {
		next.slot.span.retract(next.slot.index)
	}
}

// end lets the producer go. It reports false if that does not return within
// grace.
func (l *letters) end(grace time.Duration) bool {
	l.cancel()
	return waitFor(context.Background(), l.done, grace)
}

// trouble returns what letters fail with now, and one of those that do.
func (l *letters) trouble() (*letter, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.failing[l.last]; err != nil {
		return l.last, err
	}
	for one, err := range l.failing {
		return one, err
	}
	return nil, nil
}

// unacked is trouble, or else a letter that the producer was given before a
// time and that nobody has acked.
func (l *letters) unacked(since time.Time) (*letter, error) {
	if one, err := l.trouble(); err != nil {
		return one, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for one := range l.flying {
		if one.given.Before(since) {
			return one, ErrDeadLetterTimeout
		}
	}
	return nil, nil
}

// status tells of letters: delivered, not delivered, and what they fail with.
func (l *letters) status() DeadLetterStatus {
	if l == nil {
		return DeadLetterStatus{}
	}
	_, err := l.trouble()
	l.mu.Lock()
	defer l.mu.Unlock()
	return DeadLetterStatus{
		Delivered: l.delivered,
		Pending:   len(l.fresh) + len(l.queue) + len(l.retry) + len(l.flying),
		Err:       err,
	}
}
