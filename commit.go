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
	result := make(chan error, 1)
	if !c.running.start(func() {
		err := c.commitRetrying(ctx, offsets, strict)
		c.committedEvent(offsets, err)
		result <- err
	}) {
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return commitError(offsets, context.Cause(ctx), true)
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

func (c *Consumer) commitRetrying(ctx context.Context, offsets map[*epochState]position, strict bool) error {
	for pause := minCommitPause; ; pause = min(2*pause, maxCommitPause) {
		err, again := c.commitOnce(ctx, offsets, strict)
		if err == nil || !again {
			return err
		}
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
	c.mu.Lock()
	for s, p := range offsets {
		switch {
		case c.open[s.Partition] != s || s.fenced.Load():
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
		c.fenceEverything(err)
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

// sendFunc sends one commit. It returns the brokers' answers, of which nil is
// success, or an error if there were none.
type sendFunc func(context.Context, map[*epochState]position) (map[Partition]error, error)

// enterGate waits for the right to commit and returns how to send it and what
// to call afterwards.
//
// While a classic join is in flight the gate is shut, and a slow peer can keep
// it so for a whole rebalance timeout. A drain does not wait for that: the
// broker still accepts commits of the generation that is ending, so the last
// one is sent around kgo, which would wait.
func (c *Consumer) enterGate(ctx context.Context, offsets map[*epochState]position) (sendFunc, func(), error) {
	draining := c.draining
	for {
		select {
		case <-c.gate.token:
			return c.send, c.gate.giveBack, nil
		default:
		}
		if s := allFenced(offsets); s != nil {
			return nil, nil, &NotHeldError{s.Epoch} // lost while it waited
		}
		recheck := time.After(gateRecheck)
		select {
		case <-c.draining:
			if c.gate.isShut() {
				// The member as it is before ownership is looked
				// at: should it lose its epochs and join again
				// meanwhile, the broker refuses this commit.
				id, generation := c.client.GroupMetadata()
				send := func(ctx context.Context, offsets map[*epochState]position) (map[Partition]error, error) {
					return c.sendDuringJoin(ctx, offsets, id, generation)
				}
				return send, func() {}, nil
			}
			draining = nil
			recheck = time.After(drainRecheck)
		default:
		}
		select {
		case <-c.gate.token:
			return c.send, c.gate.giveBack, nil
		case <-draining:
		case <-recheck:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-c.dying:
			return nil, nil, ErrClosed
		}
	}
}

func (c *Consumer) send(ctx context.Context, offsets map[*epochState]position) (answers map[Partition]error, err error) {
	byTopic := make(map[string]map[int32]kgo.EpochOffset)
	for s, p := range offsets {
		if byTopic[s.Topic] == nil {
			byTopic[s.Topic] = make(map[int32]kgo.EpochOffset)
		}
		byTopic[s.Topic][s.Number] = kgo.EpochOffset{Epoch: p.leaderEpoch, Offset: p.offset}
	}
	metadata := c.metadataOf(offsets)
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			rt := &req.Topics[i]
			for j := range rt.Partitions {
				rt.Partitions[j].Metadata = metadata[Partition{rt.Topic, rt.Partitions[j].Partition}]
			}
		}
		return nil
	})
	c.client.CommitOffsetsSync(ctx, byTopic, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, e error) {
		if err = e; err == nil {
			answers = answersTo(req, resp)
		}
	})
	return answers, err
}

func (c *Consumer) metadataOf(offsets map[*epochState]position) map[Partition]*string {
	c.mu.Lock()
	defer c.mu.Unlock()
	metadata := make(map[Partition]*string, len(offsets))
	for s := range offsets {
		text := s.metadata
		metadata[s.Partition] = &text
	}
	return metadata
}

// sendDuringJoin sends a commit without kgo's order of commits and joins.
func (c *Consumer) sendDuringJoin(ctx context.Context, offsets map[*epochState]position, memberID string, generation int32) (map[Partition]error, error) {
	ps := make([]Partition, 0, len(offsets))
	for s := range offsets {
		ps = append(ps, s.Partition)
	}
	ids, err := c.topicIDs(ctx, topicsOf(ps))
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = c.group
	req.MemberID, req.Generation = memberID, generation
	req.InstanceID = c.instanceID()
	metadata := c.metadataOf(offsets)
	byTopic := make(map[string][]kmsg.OffsetCommitRequestTopicPartition)
	for s, p := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = s.Number, p.offset, p.leaderEpoch
		rp.Metadata = metadata[s.Partition]
		byTopic[s.Topic] = append(byTopic[s.Topic], rp)
	}
	for topic, partitions := range byTopic {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID, rt.Partitions = topic, ids[topic], partitions
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, err
	}
	answers := answersTo(req, resp)
	for p, e := range answers {
		if e == kerr.IllegalGeneration {
			// The join ended under our hands: not a member that is
			// gone, but one that goes the ordinary way again.
			answers[p] = kerr.RebalanceInProgress
		}
	}
	return answers, nil
}

// answersTo reads a response. From version 10 on it names topics by ID only.
func answersTo(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) map[Partition]error {
	names := make(map[[16]byte]string, len(req.Topics))
	for i := range req.Topics {
		names[req.Topics[i].TopicID] = req.Topics[i].Topic
	}
	answers := make(map[Partition]error)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for _, p := range t.Partitions {
			answers[Partition{name, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	// What was not answered was not committed.
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			key := Partition{req.Topics[i].Topic, p.Partition}
			if _, ok := answers[key]; !ok {
				answers[key] = kerr.UnknownServerError
			}
		}
	}
	return answers
}

func (c *Consumer) topicIDs(ctx context.Context, topics []string) (map[string][16]byte, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := c.client.RequestCachedMetadata(ctx, req, time.Minute)
	if err != nil {
		return nil, err
	}
	ids := make(map[string][16]byte)
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			ids[*t.Topic] = t.TopicID
		}
	}
	return ids, nil
}

func (c *Consumer) instanceID() *string {
	if id, ok := c.client.OptValue(kgo.InstanceID).(string); ok && id != "" {
		return &id
	}
	return nil
}

// fenceEverything is for a member that the broker does not know any more: its
// partitions may be others' already.
func (c *Consumer) fenceEverything(why error) {
	c.mu.Lock()
	states := slices.Collect(maps.Values(c.open))
	waiting := c.loseLocked(states, why)
	c.mu.Unlock()
	c.endEpochs(states, ErrFenced)
	for _, ev := range waiting {
		ev.release()
	}
}

func commitError(offsets map[*epochState]position, err error, unknown bool) error {
	e := &CommitError{Err: err, Unknown: unknown}
	for s := range offsets {
		e.Partitions = append(e.Partitions, s.Partition)
	}
	sortPartitions(e.Partitions)
	return e
}
