package arroyo

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

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
		text := c.metadata[s.Partition]
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
	resp, err := c.client.RequestCachedMetadata(ctx, metadataRequest(topics), time.Minute)
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
