package memkafka_test

import (
	"testing"
	"testing/synctest"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What is done to a group is done, wherever its coordinator is by then.
func TestOperationsAfterTheCoordinatorMoved(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4), memkafka.Brokers(2))
				opts := append([]kgo.Opt{kgo.ClientID("me")}, opts...)
				client := newClient(t, broker, append([]kgo.Opt{
					kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				}, opts...)...)
				memkafka.Start(t, consume(client))
				for i := range 3 {
					broker.WaitStable("g", 1)
					broker.Produce("events", "a")
					broker.WaitCommitted("g", "events", int64(i+1))

					broker.MoveCoordinator("g")
					broker.ForceRebalance("g")
					broker.WaitStable("g", 1)
					broker.MoveCoordinator("g")
					broker.Kick("g", "me")
				}
				client.CloseAllowingRebalance()
				broker.WaitStable("g", 0)
				broker.MoveCoordinator("g")
				broker.ExpireOffsets("g")
				if got := broker.Committed("g", "events"); len(got) > 0 {
					t.Errorf("committed: %v", got)
				}
			})
		})
	}
}
