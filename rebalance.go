package arroyo

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgo calls these three hooks one at a time, each on a goroutine of its own,
// while its heartbeats go on. Each queues an event and waits for its release.
// Empty maps are not events but marks of a rebalance's phases: a group session
// ends with a Revoked of nothing and begins with an Assigned of nothing.

func (c *Consumer) onAssigned(ctx context.Context, _ *kgo.Client, assigned map[string][]int32) {
	if c.probed(ctx) {
		return
	}
	c.checkMember()
	c.gate.open()
	c.paceSessions()
	c.mu.Lock()
	c.recovered("group")
	deadline := c.rebalanceDeadline()
	var states []*epochState
	for _, p := range partitionsOf(assigned) {
		c.owned[p] = true
		delete(c.metadata, p) // its last owner's commits say it
		if c.drainEvent == nil && !c.ending && c.open[p] == nil {
			states = append(states, c.openEpoch(p))
		}
	}
	adrift := c.adrift()
	var ev *Assigned
	if len(states) > 0 {
		ev = &Assigned{Epochs: epochsOf(states), states: states, consumer: c, hold: hold{released: make(chan struct{})}}
		c.stream.push(ev)
	}
	c.mu.Unlock()

	c.tellPauses(partitionsOfStates(states))
	if len(adrift) > 0 {
		ctx, cancel := context.WithDeadline(c.root, deadline)
		c.takeBack(ctx, adrift)
		cancel()
	}
	if ev != nil {
		c.await(&ev.hold, deadline, c.draining) // a drain does not wait for it
	}
	c.mu.Lock()
	c.rebalanceFrom = time.Time{}
	c.inSession = true
	c.mu.Unlock()
}

func (c *Consumer) onRevoked(ctx context.Context, _ *kgo.Client, revoked map[string][]int32) {
	if c.probed(ctx) {
		return
	}
	c.checkMember()
	c.gate.open()
	c.mu.Lock()
	deadline := c.rebalanceDeadline()
	var (
		states []*epochState
		wait   *hold
	)
	for _, p := range partitionsOf(revoked) {
		delete(c.owned, p)
		if s := c.open[p]; s != nil && !s.fenced.Load() && !c.leaving {
			states = append(states, s)
		}
	}
	if len(states) > 0 {
		if c.drainEvent != nil {
			// The drain asked for all of them already; its release
			// is what we wait for, under the smaller deadline.
			wait = &c.drainEvent.hold
		} else {
			ev := &Revoked{Epochs: epochsOf(states), Deadline: deadline, states: states, hold: hold{released: make(chan struct{})}}
			for _, s := range states {
				s.revoking = ev
			}
			c.stream.push(ev)
			wait = &ev.hold
		}
	}
	c.mu.Unlock()
	done := make(chan struct{})
	if wait != nil {
		c.running.start(func() { c.watchHeld(states, done) })
	}

	if wait != nil {
		c.await(wait, deadline, nil)
	}
	close(done)
	c.closeEpochs(states, ErrFenced)
	c.tellPauses(partitionsOf(revoked)) // those without an epoch as well
	// A commit in flight was begun before the epochs were closed and may
	// take until the last moment.
	closing, cancel := context.WithDeadline(c.root, deadline.Add(commitReserve-time.Second))
	defer cancel()
	c.gate.close(closing, context.DeadlineExceeded)

	c.mu.Lock()
	if c.inSession {
		// The session ends and a join follows, which waits for the
		// others. The time that they take is not ours: what is held
		// after the join has a budget of its own.
		c.inSession = false
		c.rebalanceFrom = time.Time{}
	}
	c.mu.Unlock()
}

func (c *Consumer) onLost(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	if c.probed(ctx) {
		return
	}
	c.mu.Lock()
	var states []*epochState
	for _, p := range partitionsOf(lost) {
		delete(c.owned, p)
		if s := c.open[p]; s != nil {
			states = append(states, s)
			delete(c.open, p)
		}
	}
	if len(states) > 0 {
		c.stream.push(&Lost{Epochs: epochsOf(states), Reason: ErrSessionEnded, states: states})
	}
	c.rebalanceFrom = time.Time{}
	c.inSession = false
	c.mu.Unlock()

	c.endEpochs(states, ErrFenced)
	c.tellPauses(partitionsOf(lost)) // those without an epoch as well
	// The commit in flight is not ours to make any more. Whether the broker
	// applied it is unknown.
	c.gate.cut(ErrFenced)
	c.gate.close(c.root, ErrFenced)
}

const (
	minSessionPause = 10 * time.Millisecond
	maxSessionPause = time.Second
)

// paceSessions slows a session down that began right after the one before.
// Under KIP-848, kgo begins a new one at once and for ever while the fetch of
// offsets fails because no broker can be reached. A drain waits for the least
// pause only, but for that, or in a bubble its deadline would never come.
func (c *Consumer) paceSessions() {
	if time.Since(c.sessionFrom) > minSessionPause {
		c.sessionPause = 0
	} else {
		c.sessionPause = min(max(2*c.sessionPause, minSessionPause), maxSessionPause)
		least, timer := time.NewTimer(minSessionPause), time.NewTimer(c.sessionPause)
		defer least.Stop()
		defer timer.Stop()
		select {
		case <-least.C:
			select {
			case <-timer.C:
			case <-c.draining:
			case <-c.root.Done():
			case <-c.dying:
			}
		case <-c.root.Done():
		case <-c.dying:
		}
	}
	c.sessionFrom = time.Now()
}

// await waits until an event is released, its deadline has passed, or the
// consumer is closed.
func (c *Consumer) await(h *hold, deadline time.Time, orElse <-chan struct{}) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-h.released:
	case <-timer.C:
	case <-orElse:
	case <-c.root.Done():
	case <-c.dying:
	}
}

// rebalanceDeadline returns when everything that is held in the rebalance that
// goes on, or begins now, has to be released. The holds add up, and so share
// one budget. Consumer.mu is held.
func (c *Consumer) rebalanceDeadline() time.Time {
	if c.rebalanceFrom.IsZero() {
		c.rebalanceFrom = time.Now()
	}
	return c.rebalanceFrom.Add(c.budget)
}

func partitionsOf(m map[string][]int32) []Partition {
	var ps []Partition
	for topic, numbers := range m {
		for _, n := range numbers {
			ps = append(ps, Partition{topic, n})
		}
	}
	sortPartitions(ps)
	return ps
}

func sortPartitions(ps []Partition) {
	slices.SortFunc(ps, comparePartitions)
}

func comparePartitions(a, b Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
}
