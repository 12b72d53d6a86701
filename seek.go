package arroyo

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Seek makes partitions go on at other offsets. It ends their epochs: Poll
// yields a Lost and then an Assigned with new epochs, both with the Reason
// ErrSeek; what was fetched before is dropped. Within an epoch offsets only
// rise, so what a pipeline still does for the old one touches nothing.
//
// It returns a *NotHeldError, and changes nothing, if an epoch is not held or
// is asked back. An offset that is not in the log shows as an
// *OffsetOutOfRangeError.
func (c *Consumer) Seek(offsets map[Epoch]int64) error {
	c.mu.Lock()
	var states []*epochState
	at := make(map[Partition]position, len(offsets))
	for e, offset := range offsets {
		s := c.open[e.Partition]
		if s == nil || s.Epoch != e || s.fenced.Load() || s.revoking != nil {
			c.mu.Unlock()
			return &NotHeldError{e}
		}
		states = append(states, s)
		at[e.Partition] = position{offset, -1}
	}
	sortEpochs(states)
	c.moveLocked(states, at, ErrSeek)
	c.mu.Unlock()
	c.endEpochs(states, ErrFenced)
	return nil
}

// moveLocked ends epochs whose partitions are to go on elsewhere, and queues
// what opens their new ones. The caller ends the states once it has let go of
// Consumer.mu.
func (c *Consumer) moveLocked(states []*epochState, at map[Partition]position, why error) {
	if len(states) == 0 {
		return
	}
	for _, s := range states {
		s.fenced.Store(true)
		delete(c.open, s.Partition)
	}
	c.stream.discard(states)
	c.stream.push(&Lost{Epochs: epochsOf(states), Reason: why, states: states})
	c.stream.push(&moving{at, nil, why})
}

// moving are partitions of ours without an epoch that are to go on at other
// positions. Poll makes an Assigned of it.
//
// It is the goroutine that polls which sets kgo's positions, between two of its
// polls: so no record of an old position can get into a new epoch.
type moving struct {
	at    map[Partition]position
	begun []Partition // of these: at which the group begins
	why   error
}

func (*moving) event() {}

// moved sets the positions and opens the epochs of what is still ours. It runs
// on the goroutine that polls.
func (c *Consumer) moved(m *moving) Event {
	c.mu.Lock()
	var states []*epochState
	ps := slices.Collect(maps.Keys(m.at))
	sortPartitions(ps)
	for _, p := range ps {
		// A rebalance may have been quicker.
		if c.owned[p] && c.open[p] == nil && c.drainEvent == nil && !c.ending {
			s := c.openEpoch(p)
			s.fetched = position{m.at[p].offset, -1}
			s.started = true // by setPositions below; taken for one that kgo has no position for, it would go back
			s.paused = pausedForStart
			s.begins = slices.Contains(m.begun, p)
			states = append(states, s)
		}
	}
	c.mu.Unlock()
	if len(states) == 0 {
		return nil
	}
	// They stay paused until the event is released, which may still say where
	// to start; who ended the old epochs may not have come to pausing them yet.
	c.tellPauses(partitionsOfStates(states))
	c.setPositions(states, m.at)
	return c.assignedBy(states, m.why)
}

// assignedBy makes the event of new epochs that kgo does not know to be new.
// Their partitions flow from its release on.
func (c *Consumer) assignedBy(states []*epochState, why error) *Assigned {
	ev := &Assigned{Epochs: epochsOf(states), states: states, Reason: why, consumer: c, hold: hold{released: make(chan struct{})}}
	ev.then = func() {
		c.running.start(func() {
			c.begin(states)
			c.mu.Lock()
			c.stream.push(&starting{states})
			c.mu.Unlock()
		})
	}
	deadline := time.Now().Add(c.budget)
	c.running.start(func() {
		c.await(&ev.hold, deadline, c.draining)
		ev.release()
	})
	return ev
}

// begin commits where the group begins, which could not be done before there
// were epochs.
func (c *Consumer) begin(states []*epochState) {
	commits := make(map[*epochState]position)
	c.mu.Lock()
	for _, s := range states {
		if s.begins && s.startAt < 0 {
			commits[s] = s.fetched
		}
	}
	c.mu.Unlock()
	if len(commits) > 0 {
		ctx, cancel := context.WithTimeout(c.root, c.budget)
		defer cancel()
		c.commitStarts(ctx, commits)
	}
}

// starting are epochs whose Assigned was released.
type starting struct{ states []*epochState }

func (*starting) event() {}

// start lets partitions flow, from where StartAt said. It runs on the goroutine
// that polls.
func (c *Consumer) start(ev *starting) {
	at := make(map[Partition]position)
	var chosen []*epochState
	c.mu.Lock()
	for _, s := range ev.states {
		if s.startAt >= 0 && c.open[s.Partition] == s {
			s.fetched = position{s.startAt, -1}
			at[s.Partition] = s.fetched
			chosen = append(chosen, s)
		}
	}
	c.mu.Unlock()
	c.setPositions(chosen, at)
	c.setPaused(ev.states, pausedForStart, false)
}

func (c *Consumer) setPositions(states []*epochState, at map[Partition]position) {
	if len(states) == 0 {
		return
	}
	set := make(map[string]map[int32]kgo.EpochOffset)
	for _, s := range states {
		if set[s.Topic] == nil {
			set[s.Topic] = make(map[int32]kgo.EpochOffset)
		}
		p := at[s.Partition]
		set[s.Topic][s.Number] = kgo.EpochOffset{Epoch: p.leaderEpoch, Offset: p.offset}
	}
	c.client.SetOffsets(set)
}

// adrift returns the partitions that kgo owns and nobody reads: their epochs
// were fenced because a commit was told that the member is gone, or because no
// broker answered for too long, and then the group took the member back as it
// was, so that no hook names them. Consumer.mu is held.
func (c *Consumer) adrift() []Partition {
	if c.drainEvent != nil || c.ending {
		return nil
	}
	var ps []Partition
	for p := range c.owned {
		if c.open[p] == nil && !c.stream.isMoving(p) {
			ps = append(ps, p)
		}
	}
	sortPartitions(ps)
	return ps
}

func (s *stream) isMoving(p Partition) bool {
	return slices.ContainsFunc(s.queued, func(ev Event) bool {
		m, ok := ev.(*moving)
		if !ok {
			return false
		}
		_, ok = m.at[p]
		return ok
	})
}

// takeBack makes partitions go on at the committed offsets that nobody reads.
func (c *Consumer) takeBack(ctx context.Context, ps []Partition) {
	c.tellPauses(ps)
	at, begun, err := c.committedOrStart(ctx, ps)
	if err != nil {
		// The session is about to end, and the next one tries again; if
		// not, a rejoin makes for a next one.
		c.client.ForceRebalance()
		return
	}
	c.mu.Lock()
	c.stream.push(&moving{at, begun, ErrTakenBack})
	c.mu.Unlock()
}

// committedOrStart fetches where the group is, or where it starts: these
// partitions are begun. It tries until ctx ends.
func (c *Consumer) committedOrStart(ctx context.Context, ps []Partition) (at map[Partition]position, begun []Partition, err error) {
	err = c.trying(ctx, func() (err error) {
		at, err = c.fetchOffsets(ctx, ps)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, p := range ps {
		if at[p].offset < 0 {
			begun = append(begun, p)
		}
	}
	if len(begun) == 0 {
		return at, nil, nil
	}
	starts, err := c.resolveStarts(ctx, begun)
	maps.Copy(at, starts)
	return at, begun, err
}

var errOmitted = errors.New("the broker's answer leaves it out")

// fetchOffsets asks what the group has committed; -1 is nothing. A partition
// that the answer leaves out, or has an error for, is an error: taken for one
// without a commit it would start anew.
func (c *Consumer) fetchOffsets(ctx context.Context, ps []Partition) (map[Partition]position, error) {
	ids, err := c.topicIDs(ctx, topicsOf(ps))
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = c.group
	for topic, numbers := range byTopic(ps) {
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.TopicID, rt.Partitions = topic, ids[topic], numbers
		group.Topics = append(group.Topics, rt)
	}
	req.Groups = append(req.Groups, group)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, &GroupError{c.group, err}
	}
	names := make(map[[16]byte]string, len(ids))
	for topic, id := range ids {
		names[id] = topic
	}
	at := make(map[Partition]position, len(ps))
	metadata := make(map[Partition]string)
	for i := range resp.Groups {
		if err := kerr.ErrorForCode(resp.Groups[i].ErrorCode); err != nil {
			return nil, &GroupError{c.group, err}
		}
		for j := range resp.Groups[i].Topics {
			rt := &resp.Groups[i].Topics[j]
			topic := rt.Topic
			if topic == "" {
				topic = names[rt.TopicID]
			}
			for _, rp := range rt.Partitions {
				p := Partition{topic, rp.Partition}
				if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
					return nil, &PartitionError{p, err}
				}
				at[p] = position{rp.Offset, rp.LeaderEpoch}
				if rp.Metadata != nil && rp.Offset >= 0 {
					metadata[p] = *rp.Metadata
				}
			}
		}
	}
	for _, p := range ps {
		if _, ok := at[p]; !ok {
			return nil, &PartitionError{p, errOmitted}
		}
	}
	c.mu.Lock()
	maps.Copy(c.metadata, metadata)
	c.mu.Unlock()
	return at, nil
}

// repair gives kgo a position for partitions that it owns but does not fetch,
// because it could not get the group's offsets for them.
func (c *Consumer) repair(states []*epochState) {
	for pause := minStartPause; ; pause = min(2*pause, maxStartPause) {
		if !c.sleep(c.root, pause) {
			return
		}
		states = slices.DeleteFunc(states, func(s *epochState) bool { return s.fenced.Load() })
		if len(states) == 0 {
			return
		}
		var ps []Partition
		for _, s := range states {
			ps = append(ps, s.Partition)
		}
		ctx, cancel := context.WithTimeout(c.root, c.budget)
		at, _, err := c.committedOrStart(ctx, ps)
		cancel()
		if err == nil {
			c.mu.Lock()
			c.stream.push(&repaired{states, at})
			c.mu.Unlock()
			return
		}
	}
}

// repaired are epochs whose positions could be found out at last.
type repaired struct {
	states []*epochState
	at     map[Partition]position
}

func (*repaired) event() {}

// setRepaired runs on the goroutine that polls.
func (c *Consumer) setRepaired(r *repaired) {
	c.mu.Lock()
	states := slices.DeleteFunc(r.states, func(s *epochState) bool { return c.open[s.Partition] != s })
	for _, s := range states {
		s.fetched = r.at[s.Partition]
	}
	c.mu.Unlock()
	c.setPositions(states, r.at)
	c.setPaused(states, pausedForPosition, false)
}

func topicsOf(ps []Partition) []string {
	topics := make(map[string]bool)
	for _, p := range ps {
		topics[p.Topic] = true
	}
	return slices.Sorted(maps.Keys(topics))
}

func byTopic(ps []Partition) map[string][]int32 {
	m := make(map[string][]int32)
	for _, p := range ps {
		m[p.Topic] = append(m[p.Topic], p.Number)
	}
	return m
}
