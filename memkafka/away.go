package memkafka

import "github.com/twmb/franz-go/pkg/kmsg"

// goesAway notes that a member has left a KIP-848 group to come back, if it is a static one. As in Kafka, its session goes
// on, and it is expired at the end of it if it has not come back. kfake would keep its partitions for it without an end.
func (t *tap) goesAway(group, id string) bool {
	info, err := t.broker.group(group)
	if err != nil {
		return false // closed
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	if m == nil || m.instance == nil {
		return false
	}
	m.away, m.epoch = true, info.Epoch
	m.revocation.stop()
	return true
}

// comesBack is told of members that join a KIP-848 group, before kfake is.
//
// When it is decided who has what, Kafka counts a static member that is away like any other. kfake does not: it gives the
// others what is to be kept for it, and when it comes back as it was, decides nothing anew, so that nobody has what others
// gave up meanwhile. So if anything was decided while it was away, it comes back as a new member.
func (t *tap) comesBack(req *kmsg.ConsumerGroupHeartbeatRequest) {
	if req.MemberEpoch != 0 || req.InstanceID == nil {
		return
	}
	info, err := t.broker.group(req.Group)
	if err != nil {
		return // closed
	}
	away := ""
	t.mu.Lock()
	for id, m := range t.members {
		if m.group == req.Group && m.away && *m.instance == *req.InstanceID && m.epoch != info.Epoch {
			away = id
		}
	}
	t.mu.Unlock()
	if away != "" && t.broker.removeConsumer(req.Group, away) == nil {
		t.drop(away)
	}
}
