package arroyo

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lease is the proof that the group still counts us as a member. A member that
// is cut off from the brokers goes on believing that it owns its partitions,
// under KIP-848 for ever. So everything is fenced before the session can have
// timed out at the broker, which is when others get the partitions.
type lease struct {
	mu      sync.Mutex
	proof   time.Time // when the broker last heard of us, at the earliest; zero: never
	joining time.Time // when the join began that is not through yet; zero: none
	is848   bool      // the group uses the consumer protocol
	unsure  time.Time // when a commit was last given up, by kgo as well, without an answer
}

// unsureTime is how long after it was given up a commit may still be applied.
const unsureTime = time.Minute

// commitUnsure reports whether an old commit may be applied any time now.
func (l *lease) commitUnsure() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.unsure.IsZero() && time.Since(l.unsure) < unsureTime
}

// leaseShare is how much of the session timeout a lease lasts: the rest is for
// clocks that differ, and for what fencing takes.
const leaseShare = 0.9

// leaseCheck is how often the lease is looked at, at the least.
const leaseCheck = time.Second

// OnBrokerWrite implements kgo.HookBrokerWrite: while a join waits for slow
// peers there are no heartbeats, and the broker does not expect any.
func (l *lease) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key != int16(kmsg.JoinGroup) || err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.joining = time.Now()
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *lease) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch kmsg.Key(key) {
	case kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat:
		l.is848 = kmsg.Key(key) == kmsg.ConsumerGroupHeartbeat
		// The broker heard of us when the request came, perhaps long
		// before its answer did.
		now = now.Add(-e2e.ReadWait - e2e.TimeToRead - e2e.TimeToWrite)
	case kmsg.JoinGroup:
		// Until the sync is through there are no heartbeats either.
		if e2e.Err() != nil {
			l.joining = time.Time{}
		}
	case kmsg.SyncGroup:
		l.joining = time.Time{}
	case kmsg.OffsetCommit:
		if e2e.Err() != nil {
			l.unsure = now
		}
		return
	default:
		return
	}
	if e2e.Err() == nil && now.After(l.proof) {
		l.proof = now
	}
}

// leaseUntil returns when the lease runs out. It reports false if there is none.
func (c *Consumer) leaseUntil() (time.Time, bool) {
	l := &c.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.proof.IsZero() {
		return time.Time{}, false
	}
	session := c.session
	if l.is848 {
		session = c.config.groupSession
	}
	end := l.proof.Add(time.Duration(leaseShare * float64(session)))
	if !l.joining.IsZero() {
		if waits := l.joining.Add(c.rebalance + session); waits.After(end) {
			end = waits
		}
	}
	return end, true
}

func (l *lease) isConsumerProtocol() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.is848
}

// keepLease fences everything when the lease runs out, and afterwards asks for
// the way back. It runs as long as the consumer.
func (c *Consumer) keepLease() {
	for {
		c.checkMember()
		end, ok := c.leaseUntil()
		wait := leaseCheck
		if ok { // looked at often: the end of a join brings it nearer
			wait = min(max(time.Until(end), 0), leaseCheck)
		}
		if wait > 0 {
			if !c.sleep(c.root, wait) {
				return
			}
			continue
		}
		c.fenceLease()
		if !c.awaitProof(end) {
			return
		}
		c.watchAdrift()
	}
}

// checkMember fences everything if the group has removed us. Under the classic
// protocols the answer to a join may be the first to say so. kgo then joins as
// a new member and goes on with what the old one had: it names what the group
// has given to others as revoked, as if it had been ours until then, and what
// it has given back to us not at all.
func (c *Consumer) checkMember() {
	c.lose(func() []*epochState {
		before := c.member
		c.member, _ = c.client.GroupMetadata()
		if before == "" || before == c.member || c.leaving {
			return nil
		}
		return c.everything()
	}, ErrSessionEnded)
}

func (c *Consumer) fenceLease() {
	c.lose(c.everything, ErrLeaseExpired)
	c.gate.cut(ErrFenced)
}

// awaitProof waits until a broker has answered since; it reports false if the
// consumer has ended.
func (c *Consumer) awaitProof(since time.Time) bool {
	for {
		if end, _ := c.leaseUntil(); end.After(since) {
			return true
		}
		if !c.sleep(c.root, time.Second) {
			return false
		}
	}
}

// watchAdrift opens the epochs again of what the group never missed: kgo then
// calls no hook. If it did miss us, kgo's next heartbeat tells, and its hooks do
// all the rest. It ends when nothing is adrift.
func (c *Consumer) watchAdrift() {
	for {
		c.mu.Lock()
		adrift := c.adrift()
		c.mu.Unlock()
		if len(adrift) == 0 {
			return
		}
		if c.probe(c.root) == stillMember {
			ctx, cancel := context.WithTimeout(c.root, c.budget)
			c.takeBack(ctx, adrift)
			cancel()
		}
		if !c.sleep(c.root, c.heartbeat) {
			return
		}
	}
}

// membership is what a probe finds out.
type membership int

const (
	unknownMember membership = iota // no answer, or one that says nothing
	stillMember
	notMember
)

// probe asks the broker whether we are still a member. It commits nothing.
func (c *Consumer) probe(ctx context.Context) membership {
	ctx, cancel := context.WithTimeout(ctx, c.heartbeat)
	defer cancel()
	member, generation := c.client.GroupMetadata()
	if member == "" {
		return unknownMember
	}
	var code int16
	if c.lease.isConsumerProtocol() {
		// A heartbeat would take part in reconciliation; an OffsetFetch is
		// checked for the member ID and its epoch as well (KIP-848).
		req := kmsg.NewPtrOffsetFetchRequest()
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = c.group, &member, generation
		req.Groups = append(req.Groups, g)
		resp, err := req.RequestWith(ctx, c.client)
		if err != nil || len(resp.Groups) == 0 {
			return unknownMember
		}
		code = resp.Groups[0].ErrorCode
	} else {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID, req.Generation, req.InstanceID = c.group, member, generation, c.instanceID()
		resp, err := req.RequestWith(ctx, c.client)
		if err != nil {
			return unknownMember
		}
		code = resp.ErrorCode
	}
	switch kerr.ErrorForCode(code) {
	case nil, kerr.RebalanceInProgress:
		return stillMember
	case kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedInstanceID, kerr.FencedMemberEpoch:
		return notMember
	}
	return unknownMember // a stale epoch, say: asked again
}

// watchHeld probes while a Revoked is held: kgo goes on with heartbeats
// meanwhile but does not say what the answers are. A session that is gone turns
// it into a Lost.
func (c *Consumer) watchHeld(states []*epochState, done <-chan struct{}) {
	ctx, cancel := context.WithCancel(c.root)
	defer cancel()
	for {
		timer := time.NewTimer(c.heartbeat)
		select {
		case <-timer.C:
		case <-done:
			timer.Stop()
			return
		case <-c.dying:
			timer.Stop()
			return
		}
		if c.probe(ctx) != notMember {
			continue
		}
		c.lose(func() []*epochState {
			return slices.DeleteFunc(slices.Clone(states), func(s *epochState) bool { return c.open[s.Partition] != s })
		}, ErrSessionEnded)
		return
	}
}

// everything returns the open epochs. Consumer.mu is held.
func (c *Consumer) everything() []*epochState { return slices.Collect(maps.Values(c.open)) }

// lose takes epochs away at once and queues their Lost. Of a rebalance that is
// held for them there is nothing left to wait for.
func (c *Consumer) lose(which func() []*epochState, why error) {
	var waiting []*Revoked
	c.mu.Lock()
	states := which()
	sortEpochs(states)
	for _, s := range states {
		s.fenced.Store(true)
		delete(c.open, s.Partition)
		if s.revoking != nil && s.revoking != c.drainEvent && !slices.Contains(waiting, s.revoking) {
			waiting = append(waiting, s.revoking)
		}
	}
	if len(states) > 0 {
		c.stream.push(&Lost{Epochs: epochsOf(states), Reason: why, states: states})
	}
	c.mu.Unlock()
	c.endEpochs(states, ErrFenced)
	for _, ev := range waiting {
		ev.release()
	}
}
