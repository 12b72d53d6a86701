package integration

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// I14 between two processes: a group in a process of its own writes the commit
// log, is killed and comes back; the one that follows it is given what that has
// committed, and nothing else.
func TestI14FollowsAnotherProcess(t *testing.T) {
	const records = 20_000
	c := newCluster(t, 4)
	commits := c.kafka.Topic(t, 2)
	store, actions := newLedger(), newLedger()
	c.produce(t, records/2)

	consumer, err := arroyo.NewConsumer(c.kafka.Group(t), []string{c.topic},
		arroyo.ClientOptions(kgo.SeedBrokers(c.kafka.Brokers()...)),
		arroyo.Synchronize(arroyo.CommitLogTopic(commits), c.group))
	if err != nil {
		t.Fatal(err)
	}
	processor, err := arroyo.NewProcessor(consumer, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		actions.add("actions", record{m.Payload.Partition, m.Payload.Offset})
		return nil
	}), arroyo.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	follower := &member{cancel, make(chan error, 1)}
	go func() { follower.err <- processor.Run(ctx) }()

	notAhead := func() {
		t.Helper()
		given := make(map[int32]int64)
		actions.mu.Lock()
		for r := range actions.seen {
			given[r.partition] = max(given[r.partition], r.offset+1)
		}
		actions.mu.Unlock()
		committed := c.committed(t) // it only rises, so later is fine
		for p, at := range given {
			if at > committed[p] {
				t.Errorf("partition %d: records up to %d were given, and %d is committed", p, at, committed[p])
			}
		}
	}
	env := childLogEnv + "=" + commits
	killed := c.startChild(t, "cooperative", "killed", store, env)
	eventually(t, "the follower follows", time.Minute, func() bool { notAhead(); return actions.len() > 1000 })
	killed.kill()
	c.produce(t, records/2)
	again := c.startChild(t, "cooperative", "again", store, env)
	eventually(t, "everything is given", 2*time.Minute, func() bool { notAhead(); return actions.len() == records })
	again.kill()
	follower.stop(t)
	for r, by := range actions.seen {
		if len(by) != 1 {
			t.Errorf("%v was given %d times", r, len(by))
		}
	}
}
