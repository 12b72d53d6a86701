package memkafka

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A group that waits for one more than it has members, because kfake has counted
// wrongly, joins within the rebalance timeout, though a join that is sent again
// begins that time anew.
func TestAJoinThatIsMiscounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := New(t, Topic("events", 2))
		join := func(name string) {
			client, err := kgo.NewClient(append(broker.ClientOptions(),
				kgo.ClientID(name), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events"),
				kgo.DisableAutoCommit(), kgo.Balancers(kgo.RangeBalancer()), kgo.RebalanceTimeout(20*time.Second))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
		}
		join("a")
		broker.WaitStable("g", 1)
		generation := broker.generation(t, "g")
		if err := inGroup(broker.cluster, "g", func(g reflect.Value) {
			joining := inside(g, "nJoining")
			joining.SetInt(joining.Int() - 2)
		}); err != nil {
			t.Fatal(err)
		}
		join("b")
		// Something that begins kfake's timer anew before it is over.
		for range 4 {
			time.Sleep(5 * time.Second)
			_ = inGroup(broker.cluster, "g", func(g reflect.Value) {
				if timer := inside(g, "tRebalance").Interface().(*time.Timer); timer != nil {
					timer.Reset(time.Hour)
				}
			})
		}
		time.Sleep(5 * time.Second)
		if got := broker.generation(t, "g"); got == generation {
			t.Error("the join goes on after its time")
		}
	})
}

func (b *Broker) generation(t *testing.T, group string) int32 {
	t.Helper()
	info, err := b.group(group)
	if err != nil {
		t.Fatal(err)
	}
	return info.Epoch
}
