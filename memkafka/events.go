package memkafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logged tells whether the requests of a kind and their answers are looked at: those by which groups work.
func logged(kind int16) bool {
	switch kmsg.Key(kind) {
	case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat,
		kmsg.OffsetCommit, kmsg.TxnOffsetCommit:
		return true
	}
	return false
}

// sawRequest is told of requests that are about to reach the broker.
func (t *tap) sawRequest(w *wire, ex *exchange) {
	if groups := groupsOf(ex.request); len(groups) == 1 {
		w.mu.Lock()
		w.group = groups[0]
		w.mu.Unlock()
	}
	switch req := ex.request.(type) {
	case *kmsg.JoinGroupRequest:
		t.owns(req)
		t.joins(w, req)
		ex.joining = t.waitsInJoin(w, req)
	case *kmsg.SyncGroupRequest:
		ex.joining = t.waitsInSync(w, req)
	case *kmsg.LeaveGroupRequest:
		t.leaves(w, req)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		t.comesBack(req)
		t.goesAway(req)
	}
}

// owns notes which partitions a member has that joins again. It is known before the join ends, and so before the leader
// can say who is to have what.
func (t *tap) owns(req *kmsg.JoinGroupRequest) {
	owned := ownedOf(req)
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[req.MemberID]; m != nil {
		m.owned = owned
	}
}

// sawAnswer is told of answers that are about to leave the broker.
func (t *tap) sawAnswer(w *wire, ex exchange, p []byte) {
	resp, ok := parseAnswer(p, ex.request)
	if !ok {
		return
	}
	for _, group := range groupsOf(ex.request) {
		t.lookAtGroup(group)
	}
	switch req := ex.request.(type) {
	case *kmsg.JoinGroupRequest:
		t.sawJoin(w, req, resp.(*kmsg.JoinGroupResponse))
	case *kmsg.SyncGroupRequest:
		t.sawSync(w, req, resp.(*kmsg.SyncGroupResponse))
	case *kmsg.HeartbeatRequest:
		code := resp.(*kmsg.HeartbeatResponse).ErrorCode
		t.alive(req.MemberID, code == 0 || code == kerr.RebalanceInProgress.Code)
		t.logError(w, "heartbeats", req.Group, code)
	case *kmsg.LeaveGroupRequest:
		t.sawLeave(w, req, resp.(*kmsg.LeaveGroupResponse))
	case *kmsg.ConsumerGroupHeartbeatRequest:
		t.sawConsumerHeartbeat(w, req, resp.(*kmsg.ConsumerGroupHeartbeatResponse))
	case *kmsg.OffsetCommitRequest:
		t.sawCommit(w, req, resp.(*kmsg.OffsetCommitResponse))
	case *kmsg.TxnOffsetCommitRequest:
		t.sawTxnCommit(w, req, resp.(*kmsg.TxnOffsetCommitResponse))
	}
}

func (t *tap) sawJoin(w *wire, req *kmsg.JoinGroupRequest, resp *kmsg.JoinGroupResponse) {
	if resp.ErrorCode == kerr.MemberIDRequired.Code {
		return // the first half of a join
	}
	if resp.ErrorCode != 0 {
		t.logError(w, "joins", req.Group, resp.ErrorCode)
		return
	}
	t.mu.Lock()
	t.leaders[req.Group] = resp.LeaderID
	t.mu.Unlock()
	t.noteJoin(w, req, resp.MemberID)
	what := "follower"
	if resp.LeaderID == resp.MemberID {
		what = fmt.Sprintf("leader of %d", len(resp.Members))
	}
	protocol := ""
	if resp.Protocol != nil {
		protocol = *resp.Protocol
	}
	t.log.add("group %q: %s joined generation %d, %s, as %s (%s)", req.Group, w, resp.Generation, protocol, resp.MemberID, what)
}

func (t *tap) noteJoin(w *wire, req *kmsg.JoinGroupRequest, id string) {
	t.note(id, &memberNotes{
		group: req.Group, client: w.clientID(), host: w.link.host, join: req, owned: ownedOf(req), instance: req.InstanceID,
	}, sessionOf(req))
}

// ownedOf returns the partitions that a member has when it joins, which it says if its protocol is a cooperative one.
func ownedOf(req *kmsg.JoinGroupRequest) map[string]map[int32]bool {
	owned := make(map[string]map[int32]bool)
	for _, p := range req.Protocols {
		var meta kmsg.ConsumerMemberMetadata
		if meta.ReadFrom(p.Metadata) != nil {
			continue
		}
		for _, o := range meta.OwnedPartitions {
			if owned[o.Topic] == nil {
				owned[o.Topic] = make(map[int32]bool)
			}
			for _, p := range o.Partitions {
				owned[o.Topic][p] = true
			}
		}
	}
	return owned
}

func (t *tap) sawSync(w *wire, req *kmsg.SyncGroupRequest, resp *kmsg.SyncGroupResponse) {
	if resp.ErrorCode != 0 {
		t.logError(w, "syncs", req.Group, resp.ErrorCode)
		return
	}
	t.alive(req.MemberID, true)
	assigned := make(map[string][]int32)
	var a kmsg.ConsumerMemberAssignment
	if a.ReadFrom(resp.MemberAssignment) == nil {
		for _, topic := range a.Topics {
			assigned[topic.Topic] = topic.Partitions
		}
	}
	t.log.add("group %q: %s has %s in generation %d", req.Group, w, describePartitions(assigned), req.Generation)
}

func (t *tap) sawLeave(w *wire, req *kmsg.LeaveGroupRequest, resp *kmsg.LeaveGroupResponse) {
	if resp.ErrorCode != 0 {
		t.logError(w, "leaves", req.Group, resp.ErrorCode)
		return
	}
	members := []kfake.GroupMember{{MemberID: req.MemberID}}
	if req.Version >= 3 {
		members = nil
		for _, m := range resp.Members {
			if m.ErrorCode == 0 {
				members = append(members, kfake.GroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID})
			}
		}
	}
	for _, m := range members {
		who := t.describe(m.MemberID)
		t.drop(m.MemberID)
		t.log.add("group %q: %s left", req.Group, who)
		t.removed(req.Group, m)
	}
}

func (t *tap) sawConsumerHeartbeat(w *wire, req *kmsg.ConsumerGroupHeartbeatRequest, resp *kmsg.ConsumerGroupHeartbeatResponse) {
	if resp.ErrorCode != 0 {
		t.staysHere(req)
		t.logError(w, "heartbeats", req.Group, resp.ErrorCode)
		return
	}
	id := req.MemberID
	if resp.MemberID != nil && *resp.MemberID != "" {
		id = *resp.MemberID
	}
	switch {
	case req.MemberEpoch == -2 && t.isAway(id):
		t.log.add("group %q: %s, a static member, is away", req.Group, w)
		return
	case req.MemberEpoch < 0:
		t.drop(id)
		t.log.add("group %q: %s left", req.Group, w)
		return
	case req.MemberEpoch == 0:
		t.note(id, &memberNotes{
			group: req.Group, client: w.clientID(), host: w.link.host, instance: req.InstanceID,
		}, consumerSession)
		t.log.add("group %q: %s joined at epoch %d, KIP-848, as %s", req.Group, w, resp.MemberEpoch, id)
	default:
		t.alive(id, true)
	}
	t.sawAssignment(id, req, resp)
	if resp.Assignment != nil {
		assigned := make(map[string][]int32)
		for _, topic := range resp.Assignment.Topics {
			assigned[t.topicName(topic.TopicID)] = topic.Partitions
		}
		t.log.add("group %q: %s is to have %s at epoch %d", req.Group, w, describePartitions(assigned), resp.MemberEpoch)
	}
}

func (t *tap) sawCommit(w *wire, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) {
	offsets := make(map[part]int64)
	for _, rt := range req.Topics {
		for _, p := range rt.Partitions {
			offsets[part{t.nameOf(rt.Topic, rt.TopicID), p.Partition}] = p.Offset
		}
	}
	var results []commitResult
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			results = append(results, commitResult{part{t.nameOf(rt.Topic, rt.TopicID), p.Partition}, p.ErrorCode})
		}
	}
	t.logCommit(w, "commits", req.Group, offsets, results)
}

func (t *tap) sawTxnCommit(w *wire, req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) {
	offsets := make(map[part]int64)
	for _, rt := range req.Topics {
		for _, p := range rt.Partitions {
			offsets[part{rt.Topic, p.Partition}] = p.Offset
		}
	}
	var results []commitResult
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			results = append(results, commitResult{part{rt.Topic, p.Partition}, p.ErrorCode})
		}
	}
	t.logCommit(w, "commits in a transaction", req.Group, offsets, results)
}

type commitResult struct {
	part part
	code int16
}

// logCommit has a line for what was committed and one for each error.
func (t *tap) logCommit(w *wire, does, group string, offsets map[part]int64, results []commitResult) {
	byCode := make(map[int16][]string)
	slices.SortFunc(results, func(a, b commitResult) int {
		return slices.Compare([]string{a.part.topic, fmt.Sprintf("%10d", a.part.partition)},
			[]string{b.part.topic, fmt.Sprintf("%10d", b.part.partition)})
	})
	for _, r := range results {
		byCode[r.code] = append(byCode[r.code], fmt.Sprintf("%s[%d]=%d", r.part.topic, r.part.partition, offsets[r.part]))
	}
	for _, code := range slices.Sorted(maps.Keys(byCode)) {
		verdict := ""
		if code != 0 {
			verdict = ": " + errorName(code)
		}
		t.log.add("group %q: %s %s %s%s", group, w, does, strings.Join(byCode[code], " "), verdict)
	}
}

func (t *tap) logError(w *wire, does, group string, code int16) {
	if code != 0 {
		t.log.add("group %q: %s %s: %s", group, w, does, errorName(code))
	}
}

func (t *tap) nameOf(topic string, id [16]byte) string {
	if topic != "" {
		return topic
	}
	return t.topicName(id)
}

func errorName(code int16) string {
	if err, ok := kerr.ErrorForCode(code).(*kerr.Error); ok {
		return err.Message
	}
	return fmt.Sprintf("error %d", code)
}

func describePartitions(assigned map[string][]int32) string {
	var topics []string
	for _, topic := range slices.Sorted(maps.Keys(assigned)) {
		if len(assigned[topic]) > 0 {
			topics = append(topics, fmt.Sprintf("%s%v", topic, slices.Sorted(slices.Values(assigned[topic]))))
		}
	}
	if len(topics) == 0 {
		return "nothing"
	}
	return strings.Join(topics, " ")
}
