package memkafka

import (
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// goesAway notes that a member leaves a KIP-848 group to come back, if it is a static one. As in Kafka, its session goes
// on, and it is expired at the end of it if it has not come back. kfake would keep its partitions for it without an end.
//
// It is told of the request: a client that leaves may be gone before there is an answer.
func (t *tap) goesAway(req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.MemberEpoch != -2 {
		return
	}
	info, err := t.broker.group(req.Group)
	if err != nil {
		return // closed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[req.MemberID]; m != nil && m.instance != nil && m.away == nil {
		m.away, m.epoch = req, info.Epoch
		m.revocation.stop()
	}
}

// staysHere notes that a member was not let go by that request.
func (t *tap) staysHere(req *kmsg.ConsumerGroupHeartbeatRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[req.MemberID]; m != nil && m.away == req {
		m.away = nil
	}
}

// isAway reports whether a member has left to come back.
func (t *tap) isAway(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	return m != nil && m.away != nil
}

// comesBack is told of members that join a KIP-848 group, before kfake is.
//
// When it is decided who has what, Kafka counts a static member that is away like any other. kfake does not: it gives the
// others what is to be kept for it, and when it comes back as it was, decides nothing anew, so that nobody has what others
// gave up meanwhile, nor the partitions that a topic got while all were away. So if anything was decided while it was away,
// or should have been, it comes back as a new member.
func (t *tap) comesBack(req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.MemberEpoch != 0 || req.InstanceID == nil {
		return
	}
	info, err := t.broker.group(req.Group)
	if err != nil {
		return // closed
	}
	away, alone := t.awayAs(*req.InstanceID, info)
	if away == nil {
		return
	}
	if away.epoch == info.Epoch && !(alone && t.broker.lacks(info)) {
		return
	}
	if t.broker.removeConsumer(req.Group, away.id) == nil {
		t.drop(away.id)
	}
}

// awayAs returns the member of a group that is away and has that instance ID, if there is one, and whether all others are
// away, too.
func (t *tap) awayAs(instance string, info *kfake.GroupInfo) (away *memberNotes, alone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	alone = true
	for _, member := range info.Members {
		switch m := t.members[member.MemberID]; {
		case m == nil || m.away == nil:
			alone = false
		case *m.instance == instance:
			away = m
		}
	}
	return away, alone
}

// lacks reports whether partitions of the topics that a group reads are nobody's.
func (b *Broker) lacks(info *kfake.GroupInfo) bool {
	release, err := b.use()
	if err != nil {
		return false // closed
	}
	defer release()
	assigned := make(map[string]int)
	for _, m := range info.Members {
		for _, topic := range m.SubscribedTopics {
			assigned[topic] += 0
		}
		for topic, partitions := range m.Assignment {
			assigned[topic] += len(partitions)
		}
	}
	for topic, n := range assigned {
		if len(b.cluster.PartitionInfos(topic)) > n {
			return true
		}
	}
	return false
}
