package arroyo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	minCommitPause = 100 * time.Millisecond
	maxCommitPause = 2 * time.Second
	drainRecheck   = 50 * time.Millisecond
	gateRecheck    = time.Second
)

// commit commits on a goroutine of its own, because a broker that does not
// answer can take 90 s, and waits for it or for ctx. A commit that was sent is
// not taken back when ctx ends; it is cut short only when its partitions are
// lost or the time of their rebalance is over.
//
// With strict set, nothing is committed unless all epochs are held; else those
// that are not are left out.
func (c *Consumer) commit(ctx context.Context, offsets map[*epochState]position, strict bool) error {
	if len(offsets) == 0 {
		return nil
	}
	var last atomic.Pointer[error] // of the attempts
	result := make(chan error, 1)
	if !c.running.start(func() {
		err := c.commitRetrying(ctx, offsets, strict, &last)
		c.committedEvent(offsets, err)
		result <- err
	}) {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		err := context.Cause(ctx)
		if answer := last.Load(); answer != nil {
			err = fmt.Errorf("%w; the last attempt: %w", err, *answer)
		}
		return commitError(offsets, err, true)
	}
}

func (c *Consumer) committedEvent(offsets map[*epochState]position, err error) {
	if !c.config.committed {
		return
	}
	ev := &Committed{Offsets: make(map[Epoch]int64, len(offsets)), Err: err}
	for s, p := range offsets {
		ev.Offsets[s.Epoch] = p.offset
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream.push(ev)
}

func (c *Consumer) commitRetrying(ctx context.Context, offsets map[*epochState]position, strict bool, last *atomic.Pointer[error]) error {
	for pause := minCommitPause; ; pause = min(2*pause, maxCommitPause) {
		err, again := c.commitOnce(ctx, offsets, strict)
		if err == nil || !again {
			return err
		}
		cause := errors.Unwrap(err) // without the partitions
		last.Store(&cause)
		if !c.sleep(ctx, pause) {
			return err
		}
	}
}

// commitOnce sends one commit and says whether it makes sense to try again.
func (c *Consumer) commitOnce(ctx context.Context, offsets map[*epochState]position, strict bool) (err error, again bool) {
	send, done, err := c.enterGate(ctx, offsets)
	var refused *NotHeldError
	if errors.As(err, &refused) {
		return refused, false
	}
	if err != nil {
		return commitError(offsets, err, false), false
	}
	defer done()
	// One at a time also where the gate does not see to it: of two commits
	// around it, or of one around and one through it, the older must not come
	// last.
	select {
	case c.sending <- struct{}{}:
		defer func() { <-c.sending }()
	case <-ctx.Done():
		return commitError(offsets, context.Cause(ctx), false), false
	case <-c.dying:
		return commitError(offsets, ErrClosed, false), false
	}

	// Known to the gate before ownership is looked at: a hook that takes the
	// epochs away after that look finds something to cut.
	sending, cancel := context.WithCancelCause(c.root)
	defer cancel(nil)
	c.gate.begin(cancel)
	defer c.gate.begin(nil)

	held := make(map[*epochState]position, len(offsets))
	var lost *epochState
	c.mu.Lock()
	for s, p := range offsets {
		switch {
		case c.open[s.Partition] != s || s.fenced.Load():
			lost = s
			if strict {
				c.mu.Unlock()
				return &NotHeldError{s.Epoch}, false
			}
		case p.offset < s.committed:
			// A newer offset was committed meanwhile and covers it.
		default:
			held[s] = p
		}
	}
	c.mu.Unlock()
	if len(held) == 0 {
		if lost != nil { // while it waited; it is not committed
			return &NotHeldError{lost.Epoch}, false
		}
		return nil, false
	}

	answers, err := send(sending, held)
	if err != nil {
		if cause := context.Cause(sending); cause != nil {
			return commitError(held, cause, true), false
		}
		// Not an answer but a failure on the way to one.
		return commitError(held, err, true), true
	}

	failed := make(map[*epochState]position)
	c.mu.Lock()
	for s, p := range held {
		e := answers[s.Partition]
		if e == nil {
			s.committed = max(s.committed, p.offset)
			continue
		}
		failed[s] = p
		if err == nil || answerTo(e) > answerTo(err) {
			err = e // the one that matters most
		}
	}
	c.mu.Unlock()
	if err == nil {
		return nil, false
	}
	switch answerTo(err) {
	case memberGone:
		// Others may have the partitions already.
		c.lose(c.everything, err)
		// kgo rejoins by itself after some of these answers only, and under
		// KIP-848 after none.
		c.client.ForceRebalance()
		c.running.start(func() {
			if c.sleep(c.root, c.heartbeat) {
				c.watchAdrift()
			}
		})
		return commitError(failed, errors.Join(err, ErrFenced), false), false
	case tryAgain:
		return commitError(failed, err, false), true
	}
	return commitError(failed, err, false), false
}

// answer is what a broker's answer to a commit means for us.
type answer int

const (
	giveUp     answer = iota // trying again changes nothing
	tryAgain                 // passes
	memberGone               // this member is not in the group: fence everything
)

// answerTo classifies the answers to commits, in one place. Those that are not
// in it (authorisation, sizes, a topic that was made anew) are not worth
// another try.
func answerTo(err error) answer {
	switch err {
	case kerr.RebalanceInProgress, // the group is about to sync
		kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, // it moves or starts
		kerr.RequestTimedOut,         // perhaps applied; the same commit again is harmless
		kerr.UnknownTopicOrPartition, // metadata spreads slowly
		kerr.StaleMemberEpoch:        // KIP-848: the heartbeat brings the new one
		return tryAgain
	case kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.FencedMemberEpoch:
		return memberGone
	}
	return giveUp
}

// allFenced returns one of the epochs if none of them is ours any more.
func allFenced(offsets map[*epochState]position) (one *epochState) {
	for s := range offsets {
		if !s.fenced.Load() {
			return nil
		}
		one = s
	}
	return one
}

func commitError(offsets map[*epochState]position, err error, unknown bool) error {
	e := &CommitError{Err: err, Unknown: unknown}
	for s := range offsets {
		e.Partitions = append(e.Partitions, s.Partition)
	}
	sortPartitions(e.Partitions)
	return e
}
