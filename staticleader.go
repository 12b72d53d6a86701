package arroyo

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// watchUnassigned sees to it that the group reads everything when a static
// member comes back. The brokers then give it what it had, without balancing the
// group (KIP-345), also if it leads the group (KIP-814). If a topic got
// partitions before that, nobody would notice: the old leader had not yet, and
// to the new one they were always there. kgo 1.22.3 compares a leader's own share
// with what it would be, and that may be the same.
func (c *Consumer) watchUnassigned() {
	seen := false // the last time; a rebalance may be about to see to it
	for c.sleep(c.root, c.heartbeat) && !c.drains() {
		if c.lease.isConsumerProtocol() {
			return // the brokers balance the group, and know all partitions
		}
		c.mu.Lock()
		settled := c.inSession && c.rebalanceFrom.IsZero()
		c.mu.Unlock()
		if !settled {
			seen = false
			continue
		}
		switch some, err := c.someUnassigned(); {
		case errors.Is(err, kerr.GroupAuthorizationFailed), err == nil && !some:
			return
		case err == nil && seen:
			c.client.ForceRebalance()
			return
		default:
			seen = err == nil
		}
	}
}

var errUnsettled = errors.New("arroyo: the group is not stable")

// someUnassigned reports whether there is a partition that no member has, of a
// topic that a member subscribes to.
func (c *Consumer) someUnassigned() (bool, error) {
	ctx, cancel := context.WithTimeout(c.root, c.heartbeat)
	defer cancel()
	described, err := kadm.NewClient(c.client).DescribeGroups(ctx, c.group)
	if err != nil {
		return false, err
	}
	group := described[c.group]
	if group.Err != nil {
		return false, group.Err
	}
	if group.State != "Stable" {
		return false, errUnsettled
	}
	topics := group.JoinTopics()
	if !c.config.regex {
		topics = append(topics, c.topics...)
	}
	resp, err := metadataRequest(topics).RequestWith(ctx, c.client)
	if err != nil {
		return false, err
	}
	assigned := group.AssignedPartitions()
	for _, topic := range resp.Topics {
		if topic.Topic == nil || topic.ErrorCode != 0 {
			continue
		}
		if len(assigned[*topic.Topic]) < len(topic.Partitions) {
			return true, nil
		}
	}
	return false, nil
}
