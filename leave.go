package arroyo

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// leaveTime bounds what leaving the group may take.
	leaveTime = 3 * time.Second
	// joinPatience is how long kgo's own way of leaving may take before a
	// join in flight, for which it waits, is left behind.
	joinPatience = 250 * time.Millisecond
	// leaveGrace is what a run that is past its end allows for leaving: a bit
	// more than joinPatience, so that a join in flight does not keep the
	// group waiting for a member that is gone.
	leaveGrace = 300 * time.Millisecond
	// closeGrace is what kgo gets to end after its context has ended.
	closeGrace = 500 * time.Millisecond
)

// Drain asks for everything back and then leaves the group. It returns at
// once. Poll yields a Revoked of all epochs, while this consumer is still a
// member with heartbeats; after its release, at the latest when timeout is
// over, the consumer leaves the group, and Poll yields Closed. Nothing is
// committed that was not committed explicitly. A second Drain does nothing.
func (c *Consumer) Drain(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drainEvent != nil || c.ending {
		return
	}
	ev := &Revoked{Deadline: time.Now().Add(timeout), hold: hold{released: make(chan struct{})}}
	c.drainEvent = ev
	for _, s := range c.open {
		// What a rebalance asks for already is its own event.
		if s.revoking == nil {
			s.revoking = ev
			ev.states = append(ev.states, s)
		}
	}
	sortEpochs(ev.states)
	ev.Epochs = epochsOf(ev.states)
	close(c.draining)

	if len(ev.states) == 0 {
		ev.release()
		c.running.start(func() { c.leave() })
		return
	}
	ev.then = func() {
		c.running.start(func() {
			c.closeEpochs(ev.states, ErrFenced)
			c.leave()
		})
	}
	c.stream.push(ev)
	c.running.start(func() {
		c.await(&ev.hold, ev.Deadline, nil)
		ev.release()
	})
}

// drains reports whether Drain was called.
func (c *Consumer) drains() bool {
	select {
	case <-c.draining:
		return true
	default:
		return false
	}
}

// leave leaves the group and ends the stream.
func (c *Consumer) leave() {
	c.mu.Lock()
	c.leaving = true
	rest := slices.Collect(maps.Values(c.open)) // held by a rebalance
	c.mu.Unlock()
	for _, s := range rest {
		if s.revoking == nil {
			continue
		}
		// Its event has a deadline of its own.
		select {
		case <-s.revoking.released:
		case <-s.ctx.Done():
		case <-c.dying:
		}
	}
	c.shutDown(leaveTime)
	c.mu.Lock()
	c.stream.push(&Closed{})
	c.mu.Unlock()
}

// shutDown leaves the group and closes the client, once, and waits for that
// within limit and a grace.
func (c *Consumer) shutDown(limit time.Duration) {
	ctx, cancel := context.WithTimeout(c.root, limit)
	defer cancel()
	c.shutting.Do(func() {
		go func() {
			defer close(c.shut)
			c.stepAside(ctx)
			c.client.Close()
		}()
	})
	if !waitFor(ctx, c.shut, joinPatience) && c.gate.isShut() {
		c.leaveDuringJoin(ctx)
	} else {
		waitFor(ctx, c.shut, limit)
	}
	c.endRoot()
	// Only a Dialer or a hook of the user's that ignores its context can hold
	// kgo for longer.
	waitFor(context.Background(), c.shut, closeGrace)
}

// waitFor waits until done is closed, at most for d and until ctx ends, and
// reports whether it is.
func waitFor(ctx context.Context, done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// leaveDuringJoin tells the broker that this member is gone, so that the group
// does not wait for it. Static members stay, as they should.
func (c *Consumer) leaveDuringJoin(ctx context.Context) {
	id, _ := c.client.GroupMetadata()
	if id == "" || c.instanceID() != nil {
		return
	}
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = c.group
	req.MemberID = id
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	// If it cannot be told, the session timeout tells it.
	_, _ = req.RequestWith(ctx, c.client)
}

// stepAside says that a static member of KIP-848 goes and may come back. kgo
// 1.22.3 leaves out the instance ID, and Kafka refuses that: a member that is
// restarted would wait until the session of the old one is over.
func (c *Consumer) stepAside(ctx context.Context) {
	id, _ := c.client.GroupMetadata()
	if id == "" || c.instanceID() == nil || !c.lease.isConsumerProtocol() {
		return
	}
	// kgo's heartbeats have to end first: one after this would be refused, and
	// make it join again. What it says of the leave does not matter.
	_ = c.client.LeaveGroupContext(ctx)
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group = c.group
	req.MemberID = id
	req.MemberEpoch = -2
	req.InstanceID = c.instanceID()
	_, _ = req.RequestWith(ctx, c.client)
}

// Close ends the consumer now: what is held is lost, nothing is committed any
// more, and Poll returns ErrClosed without further events. It leaves the group
// if that can be done in a few seconds. It may be called from any goroutine,
// deferred on the one that polls, and twice.
func (c *Consumer) Close() error {
	c.close(leaveTime)
	return nil
}

func (c *Consumer) close(limit time.Duration) {
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		<-c.closed
		return
	}
	c.ending = true
	c.leaving = true
	c.stream.closed = true
	c.stream.stir()
	states := slices.Collect(maps.Values(c.open))
	clear(c.open)
	c.mu.Unlock()

	close(c.dying)
	fenceAll(states, ErrClosed)
	c.gate.cut(ErrClosed)
	c.shutDown(limit)
	c.running.wait()
	close(c.closed)
}
