package memkafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GroupInfo is how the brokers see a group at a moment.
type GroupInfo struct {
	Name    string
	State   string   // Empty, PreparingRebalance, CompletingRebalance, Stable, Dead; with KIP-848 also Reconciling
	Epoch   int32    // of the group with KIP-848, else its generation
	Members []Member // ordered by ID
}

// Member is a member of a group. One that died is a member until its session times out.
type Member struct {
	ID         string
	ClientID   string
	InstanceID string // "" for a dynamic member
	Host       string // the address that it joined from
	// Assigned has the partitions that were given to the member, by topic, in order: of those which it has to give up, it
	// may still have some. Topics without any are absent.
	Assigned map[string][]int32
}

// Group describes the group. One that does not exist is Empty and has no members.
func (b *Broker) Group(name string) GroupInfo {
	b.t.Helper()
	info, err := b.group(name)
	if err != nil {
		b.fail("look at group %q: %w", name, err)
	}
	g := GroupInfo{Name: name, State: info.State, Epoch: info.Epoch}
	for _, m := range info.Members {
		member := Member{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Assigned: make(map[string][]int32)}
		if m.InstanceID != nil {
			member.InstanceID = *m.InstanceID
		}
		for topic, ps := range m.Assignment {
			if len(ps) > 0 {
				member.Assigned[topic] = slices.Sorted(slices.Values(ps))
			}
		}
		g.Members = append(g.Members, member)
	}
	return g
}

// Kick removes a member from its group, as an administrator can: the others rebalance at once, and the member learns
// from its next heartbeat or commit, or at once if it waits in a join or a sync, that it is none any more,
// UNKNOWN_MEMBER_ID, and joins again. The member is named by its member ID or its client ID, or the instance ID of a static
// member. Kick fails if the group has no such member, or several with that client ID.
func (b *Broker) Kick(group, member string) {
	b.t.Helper()
	if err := b.kick(group, member); err != nil {
		b.fail("kick %q out of group %q: %w", member, group, err)
	}
}

// ForceRebalance makes the group rebalance though nothing has changed. It does not wait for that: [Broker.WaitStable]
// does. It fails if the group has no members.
//
// Under the classic protocols, the leader's next heartbeat (every 3 s by default) is answered REBALANCE_IN_PROGRESS, so
// that it joins again, and the others follow. Under KIP-848 there is a new epoch at once: as in Kafka, members whose
// partitions stay the same notice nothing. To have partitions move, let a rival join and leave.
func (b *Broker) ForceRebalance(group string) {
	b.t.Helper()
	if err := b.forceRebalance(group); err != nil {
		b.fail("force group %q to rebalance: %w", group, err)
	}
}

// ExpireOffsets makes the group forget what it has committed, as Kafka does some time after the last member has left
// (seven days by default, in a bubble a matter of milliseconds, but this is quicker still). It fails if the group has
// members: Kafka keeps the offsets of their topics for as long as they are there.
func (b *Broker) ExpireOffsets(group string) {
	b.t.Helper()
	if err := b.expireOffsets(group); err != nil {
		b.fail("expire the offsets of group %q: %w", group, err)
	}
}

func (b *Broker) kick(group, member string) error {
	info, err := b.group(group)
	if err != nil {
		return err
	}
	m, err := findMember(info, member)
	if err != nil {
		return err
	}
	who := b.tap.describe(m.MemberID)
	kip848, _, err := b.isKIP848(group)
	if err != nil {
		return err
	}
	if kip848 {
		err = b.removeConsumer(group, m.MemberID)
	} else {
		err = b.removeClassic(group, *m)
	}
	if err != nil {
		return err
	}
	b.tap.drop(m.MemberID)
	b.log.add("group %q: %s was kicked out", group, who)
	return nil
}

func findMember(info *kfake.GroupInfo, name string) (*kfake.GroupMember, error) {
	var found []*kfake.GroupMember
	var have []string
	for i := range info.Members {
		m := &info.Members[i]
		switch {
		case m.MemberID == name, m.InstanceID != nil && *m.InstanceID == name:
			return m, nil
		case m.ClientID == name:
			found = append(found, m)
		}
		have = append(have, fmt.Sprintf("%s (client %q)", m.MemberID, m.ClientID))
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%d members have that client ID: give a member ID, or kgo.ClientID to the clients: %s",
			len(found), strings.Join(have, ", "))
	case len(have) == 0:
		return nil, fmt.Errorf("the group has no members: it is %s", info.State)
	}
	return nil, fmt.Errorf("it is not a member: these are: %s", strings.Join(have, ", "))
}

// removeClassic tells the coordinator that a member has left, and removeConsumer that of a KIP-848 group.
func (b *Broker) removeClassic(group string, m kfake.GroupMember) error {
	b.tap.removes(group, m, kerr.UnknownMemberID)
	rm := kmsg.NewLeaveGroupRequestMember()
	rm.MemberID = m.MemberID
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	req.Members = append(req.Members, rm)
	if _, err := askCoordinator[*kmsg.LeaveGroupResponse](b, group, req); err != nil {
		return err
	}
	b.tap.removed(group, m)
	return nil
}

func (b *Broker) removeConsumer(group, member string) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, -1
	_, err := askCoordinator[*kmsg.ConsumerGroupHeartbeatResponse](b, group, req)
	return err
}

// isKIP848 asks the coordinator whether the group, one with members, is of the new protocol, and by which assignor. What
// the tap has seen does not tell: a member is in before its answer has passed.
func (b *Broker) isKIP848(group string) (is bool, assignor string, err error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = []string{group}
	resp, err := askCoordinator[*kmsg.ConsumerGroupDescribeResponse](b, group, req)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound): // what brokers say of a classic group
		return false, "", nil
	case err != nil:
		return false, "", err
	}
	return true, resp.Groups[0].AssignorName, nil
}

func (b *Broker) forceRebalance(group string) error {
	info, err := b.group(group)
	if err != nil {
		return err
	}
	if len(info.Members) == 0 {
		return fmt.Errorf("it has no members: it is %s", info.State)
	}
	b.log.add("group %q: a rebalance is forced", group)
	kip848, assignor, err := b.isKIP848(group)
	if err != nil {
		return err
	}
	epoch := info.Epoch + 1
	if !kip848 && info.State == "CompletingRebalance" {
		epoch = info.Epoch // the leader is about to say who has what
	}
	b.mu.Lock()
	b.forced[group] = epoch
	b.mu.Unlock()
	switch {
	case kip848:
		return b.bumpEpoch(group, assignor)
	case info.State != "Stable":
		return nil // one is under way
	}
	leader := b.tap.leaderOf(group)
	b.cluster.Fault(kfake.Fault{
		Keys:  []kmsg.Key{kmsg.Heartbeat},
		Group: group,
		Err:   kerr.RebalanceInProgress,
		When:  func(req kmsg.Request) bool { return req.(*kmsg.HeartbeatRequest).MemberID == leader },
	})
	return nil
}

// forcedEpoch returns the generation that the last forced rebalance begins.
func (b *Broker) forcedEpoch(group string) int32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.forced[group]
}

// bumpEpoch has a member without topics join and leave.
func (b *Broker) bumpEpoch(group, assignor string) error {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group = group
	req.MemberID = fmt.Sprintf("memkafka-%d", time.Now().UnixNano())
	req.RebalanceTimeoutMillis = int32(waitTimeout.Milliseconds())
	req.SubscribedTopicNames = []string{}
	if assignor != "" {
		req.ServerAssignor = &assignor // that of the last one to join is the group's
	}
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if _, err := askCoordinator[*kmsg.ConsumerGroupHeartbeatResponse](b, group, req); err != nil {
		return err
	}
	return b.removeConsumer(group, req.MemberID)
}

func (b *Broker) expireOffsets(group string) error {
	info, err := b.group(group)
	if err != nil {
		return err
	}
	if n := len(info.Members); n > 0 {
		return fmt.Errorf("it has %d members, and Kafka expires nothing while there are any: stop them first: %s", n, describeGroup(info))
	}
	if len(info.Commits) == 0 {
		return errors.New("it has committed nothing")
	}
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for _, topic := range slices.Sorted(maps.Keys(info.Commits)) {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = topic
		for _, p := range slices.Sorted(maps.Keys(info.Commits[topic])) {
			rp := kmsg.NewOffsetDeleteRequestTopicPartition()
			rp.Partition = p
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	resp, err := askCoordinator[*kmsg.OffsetDeleteResponse](b, group, req)
	if err != nil {
		return err
	}
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				return fmt.Errorf("topic %q, partition %d: %w", rt.Topic, rp.Partition, err)
			}
		}
	}
	b.log.add("group %q: its offsets are expired", group)
	return nil
}
