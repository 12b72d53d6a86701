package memkafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// revocation is what a member of a KIP-848 group has to have, and until when.
//
// Kafka expires such a member if it does not give up what it has to within its rebalance timeout. kfake starts that
// time anew at each heartbeat, so a member that is busy with its revocation is never expired, however long that takes. So
// we do it.
type revocation struct {
	timeout time.Duration
	target  map[topicPartition]bool
	timer   *time.Timer // runs while the member may have more than target
}

type topicPartition struct {
	topic     [16]byte
	partition int32
}

// sawAssignment is told of the heartbeats of a member and their answers.
func (t *tap) sawAssignment(id string, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	if m == nil {
		return
	}
	r := &m.revocation
	if req.RebalanceTimeoutMillis > 0 {
		r.timeout = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
	}
	if req.Topics != nil && r.timer != nil {
		within := true
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				within = within && r.target[topicPartition{topic.TopicID, p}]
			}
		}
		if within {
			r.stop()
		}
	}
	if resp.Assignment == nil {
		return
	}
	before := r.target
	r.target = make(map[topicPartition]bool)
	for _, topic := range resp.Assignment.Topics {
		for _, p := range topic.Partitions {
			r.target[topicPartition{topic.TopicID, p}] = true
		}
	}
	for p := range before {
		if !r.target[p] && r.timer == nil && r.timeout > 0 {
			r.timer = time.AfterFunc(r.timeout, func() { t.expireRevoking(id, m) })
		}
	}
}

// stop ends the wait. The caller holds tap.mu.
func (r *revocation) stop() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

func (t *tap) expireRevoking(id string, m *memberNotes) {
	t.mu.Lock()
	late, timeout := t.members[id] == m && m.revocation.timer != nil, m.revocation.timeout
	t.mu.Unlock()
	if !late {
		return
	}
	if t.broker.removeConsumer(m.group, id) != nil {
		return // closed, or gone by itself
	}
	t.log.add("group %q: %s is expired: it did not give up its partitions within %v", m.group, t.describe(id), timeout)
	t.drop(id)
}
