package integration

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A static leader that comes back gets what it had, without a balance of the
// group. Partitions that its topic got just before that are read all the same.
func TestTopicGrewBeforeAStaticLeaderCameBack(t *testing.T) {
	c := newCluster(t, 1)
	l := newLedger()
	start := func(id string) *member {
		// With one partition or two, the leader's own share is one.
		return c.start(t, id, l, 0, []kgo.Opt{
			kgo.InstanceID(id), kgo.Balancers(kgo.RangeBalancer()),
			kgo.SessionTimeout(30 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond),
		})
	}
	a := start("a")
	c.produce(t, 10)
	eventually(t, "a processes", time.Minute, func() bool { return l.by("a") == 10 })
	b := start("b")
	eventually(t, "b is a member", time.Minute, func() bool { return c.members(t) == 2 })
	c.produce(t, 10) // is read once the group is balanced
	eventually(t, "a processes on", time.Minute, func() bool { return l.by("a") == 20 })

	a.stop(t)
	if _, err := kadm.NewClient(c.client).UpdatePartitions(t.Context(), 2, c.topic); err != nil {
		t.Fatal(err)
	}
	a = start("a")
	c.partitions = 2
	eventually(t, "the producer knows the new partition", time.Minute, func() bool {
		c.client.ForceMetadataRefresh()
		leader, _, err := c.client.PartitionLeader(c.topic, 1)
		return err == nil && leader >= 0
	})
	c.produce(t, 20)
	eventually(t, "all is committed", 30*time.Second, func() bool { return sum(c.committed(t)) == 40 })
	a.stop(t)
	b.stop(t)
}
