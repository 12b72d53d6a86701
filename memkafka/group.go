package memkafka

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// stableTimeout is longer than a session timeout (45 s) and a rebalance timeout (60 s) together, as kgo has them by
// default.
const stableTimeout = 2 * time.Minute

// Committed returns the offsets that the group has committed for the topic, by partition: each the offset of the record
// that is read next. Partitions without a commit are absent; of a group or topic that does not exist all are.
func (b *Broker) Committed(group, topic string) map[int32]int64 {
	b.t.Helper()
	info, err := b.group(group)
	if err != nil {
		b.fail("look at group %q: %w", group, err)
	}
	return committed(info, topic)
}

// WaitCommitted waits until the group's committed offsets of the topic, summed over its partitions, are n or more. In a
// topic that begins at offset 0 and has no gaps that is the number of records below them. It waits for up to a minute
// (of virtual time in a bubble) and then fails, saying what is committed. It fails at once if the topic does not exist.
func (b *Broker) WaitCommitted(group, topic string, n int64) {
	b.t.Helper()
	if _, err := b.partitions(topic); err != nil {
		b.fail("wait for commits of group %q: %w", group, err)
	}
	var last map[int32]int64
	err := b.wait(waitTimeout, group, func(info *kfake.GroupInfo) bool {
		last = committed(info, topic)
		return sum(last) >= n
	})
	if err != nil {
		b.fail("wait until group %q has committed %d on topic %q: %w: it has committed %d: %s",
			group, n, topic, err, sum(last), describeOffsets(last))
	}
}

// Members returns how many members the group has, as the broker sees it: one that died is a member until its session
// times out. A group that does not exist has none.
func (b *Broker) Members(group string) int {
	b.t.Helper()
	info, err := b.group(group)
	if err != nil {
		b.fail("look at group %q: %w", group, err)
	}
	return len(info.Members)
}

// WaitStable waits until the group is stable with exactly that many members and every partition of the topics that they
// subscribe to is assigned to one of them. With 0 members it waits until the group is empty. It waits for up to two
// minutes (of virtual time in a bubble), more than a session timeout and a rebalance timeout together, and then fails,
// saying how the group is.
//
// It also waits until a rebalance that was forced has taken place. This is the broker's view: a member is about to learn its assignment when WaitStable returns.
func (b *Broker) WaitStable(group string, members int) {
	b.t.Helper()
	var last *kfake.GroupInfo
	err := b.wait(stableTimeout, group, func(info *kfake.GroupInfo) bool {
		last = info
		if len(info.Members) != members {
			return false
		}
		if members == 0 {
			return info.State == "Empty" || info.State == "Dead"
		}
		return info.State == "Stable" && info.Epoch >= b.forcedEpoch(group) && b.unassigned(info) == 0
	})
	if err != nil {
		b.fail("wait until group %q is stable with %d members: %w: %s", group, members, err, describeGroup(last))
	}
}

// group describes the group, as an empty one if it does not exist.
func (b *Broker) group(group string) (*kfake.GroupInfo, error) {
	release, err := b.use()
	if err != nil {
		return nil, err
	}
	defer release()
	info := b.cluster.GroupInfo(group)
	if info == nil {
		info = &kfake.GroupInfo{Group: group, State: "Empty"}
	}
	return info, nil
}

// wait looks at the group until ok says so. It begins by looking often, which costs little while things happen, and
// then does so less often, which costs little while time passes.
func (b *Broker) wait(timeout time.Duration, group string, ok func(*kfake.GroupInfo) bool) error {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		info, err := b.group(group)
		if err != nil {
			return err
		}
		if ok(info) {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-b.ctx.Done():
			return errClosed
		case <-deadline.C:
			return fmt.Errorf("not within %v", timeout)
		}
	}
}

// unassigned counts the partitions which nobody has of the topics that the members want.
func (b *Broker) unassigned(info *kfake.GroupInfo) int {
	type partition struct {
		topic string
		n     int32
	}
	topics := make(map[string]bool)
	assigned := make(map[partition]bool)
	for _, m := range info.Members {
		for _, topic := range m.SubscribedTopics {
			topics[topic] = true
		}
		for topic, ps := range m.Assignment {
			topics[topic] = true
			for _, p := range ps {
				assigned[partition{topic, p}] = true
			}
		}
	}
	n := 0
	for topic := range topics {
		infos, err := b.partitions(topic)
		if err != nil {
			continue // subscribed to before it exists: nothing to assign
		}
		for _, p := range infos {
			if !assigned[partition{topic, p.Partition}] {
				n++
			}
		}
	}
	return n
}

func committed(info *kfake.GroupInfo, topic string) map[int32]int64 {
	offsets := make(map[int32]int64)
	for p, c := range info.Commits[topic] {
		offsets[p] = c.Offset
	}
	return offsets
}

func sum(offsets map[int32]int64) int64 {
	var n int64
	for _, offset := range offsets {
		n += offset
	}
	return n
}

func describeOffsets(offsets map[int32]int64) string {
	if len(offsets) == 0 {
		return "nothing"
	}
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(offsets)) {
		parts = append(parts, fmt.Sprintf("partition %d: %d", p, offsets[p]))
	}
	return strings.Join(parts, ", ")
}

func describeGroup(info *kfake.GroupInfo) string {
	if info == nil {
		return "nothing is known of it"
	}
	parts := []string{fmt.Sprintf("it is %s with %d members", info.State, len(info.Members))}
	for _, m := range info.Members {
		var topics []string
		for _, topic := range slices.Sorted(maps.Keys(m.Assignment)) {
			ps := slices.Sorted(slices.Values(m.Assignment[topic]))
			topics = append(topics, fmt.Sprintf("%s%v", topic, ps))
		}
		parts = append(parts, fmt.Sprintf("%s (client %q at %s) has [%s]",
			m.MemberID, m.ClientID, m.ClientHost, strings.Join(topics, " ")))
	}
	return strings.Join(parts, "; ")
}
