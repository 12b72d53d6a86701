package main

import (
	"bytes"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// docs/events.md shows the loop, letter for letter.
func TestEventsShowsThisLoop(t *testing.T) {
	loop, err := os.ReadFile("loop.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../events.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(doc, append([]byte("```go\n"), append(loop, "```\n"...)...)) {
		t.Error("docs/events.md does not have docs/postgres/loop.go in it as it is")
	}
}

// inBubble runs a test with a topic of four partitions and empty tables. Time
// is virtual, and stands still while the database works.
func inBubble(t *testing.T, test func(*testing.T, *memkafka.Broker, *pgxpool.Config, table)) {
	t.Helper()
	cfg := database(t)
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		stored := openTable(t, cfg)
		defer stored.db.Close()
		test(t, broker, cfg, stored)
	})
}

// produce appends n records in small batches, which is how they are fetched.
func produce(broker *memkafka.Broker, n int) {
	for i := 0; i < n; i += 40 {
		values := make([]string, 0, 40)
		for j := i; j < min(i+40, n); j++ {
			values = append(values, fmt.Sprintf("%d: %080d", j, j))
		}
		broker.Produce(topic, values...)
	}
}

// A member joins while records are stored, and goes again. All its partitions
// change hands in good order, so no transaction is refused.
func TestJoinAndLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, broker *memkafka.Broker, cfg *pgxpool.Config, stored table) {
		first := startMember(t, broker, cfg, &wire{})
		broker.WaitStable(group, 1)
		produce(broker, 400)
		second := startMember(t, broker, cfg, &wire{})
		broker.WaitStable(group, 2)
		produce(broker, 400)
		stored.await(t, 800)
		second.stop(t)
		broker.WaitStable(group, 1)
		produce(broker, 400)
		stored.await(t, 1200)
		first.stop(t)
		stored.expectOnce(t, broker)
		if n := first.wire.rollbacks.Load() + second.wire.rollbacks.Load(); n != 0 {
			t.Errorf("%d transactions were rolled back, want none", n)
		}
		if first.delivered.Load() == 0 || second.delivered.Load() == 0 {
			t.Error("one of them got nothing")
		}
		for partition, offset := range broker.Committed(group, topic) {
			if offset != 0 {
				t.Errorf("partition %d is committed up to %d, want no more than where the group began", partition, offset)
			}
		}
	})
}

// Two members share the topic. One crashes, and its partitions go to the other
// when its session has timed out.
func TestCrash(t *testing.T) {
	for _, when := range []struct {
		name string
		arm  func(w *wire, crash func())
		lost bool // whether a transaction was, so that records come twice
	}{
		// The records are inserted, the offset is moved, and nothing of it
		// counts.
		{"before the commit", func(w *wire, crash func()) {
			w.before = atCommit(crash)
		}, true},
		// All of it counts, but nobody heard of it.
		{"after the commit", func(w *wire, crash func()) {
			w.after = atCommit(crash)
		}, false},
	} {
		t.Run(when.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, broker *memkafka.Broker, cfg *pgxpool.Config, stored table) {
				steady := startMember(t, broker, cfg, &wire{})
				broker.WaitStable(group, 1)
				w := &wire{}
				var crashes *member
				when.arm(w, func() {
					crashes.host.Cut()
					w.cut()
					crashes.cancel()
				})
				crashes = startMember(t, broker, cfg, w)
				broker.WaitStable(group, 2)
				time.Sleep(10 * time.Second)
				produce(broker, 2000)
				stored.await(t, 2000)
				<-crashes.done
				if when.lost && crashes.err == nil {
					t.Error("the member did not crash")
				}
				steady.stop(t)
				stored.expectOnce(t, broker)
				delivered := steady.delivered.Load() + crashes.delivered.Load()
				if when.lost && delivered <= 2000 {
					t.Errorf("%d records were delivered, want some twice", delivered)
				}
			})
		})
	}
}

// atCommit calls crash at the third commit.
func atCommit(crash func()) func(string) {
	var commits atomic.Int64
	return func(statement string) {
		if statement == "commit" && commits.Add(1) == 3 {
			crash()
		}
	}
}

// stallAtBegin makes a wire keep the first transaction waiting. It returns
// channels that tell that one waits, and that let it go when closed.
func stallAtBegin(w *wire) (stalled, resume chan struct{}) {
	stalled, resume = make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	w.before = func(statement string) {
		if statement == "begin isolation level read committed" && begun.CompareAndSwap(false, true) {
			close(stalled)
			<-resume
		}
	}
	return stalled, resume
}

// A member is cut off with records in hand, the other one gets its partitions
// and stores them, and then the first one goes on, as a zombie: its
// transaction is refused. When it can be reached again it takes part again.
func TestZombie(t *testing.T) {
	inBubble(t, func(t *testing.T, broker *memkafka.Broker, cfg *pgxpool.Config, stored table) {
		w := &wire{}
		stalled, resume := stallAtBegin(w)
		// It has to be over before the loop loses patience with the database.
		zombie := startMember(t, broker, cfg, w, kgo.SessionTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		steady := startMember(t, broker, cfg, &wire{})
		broker.WaitStable(group, 2)
		time.Sleep(10 * time.Second)
		produce(broker, 1000)
		<-stalled
		zombie.host.BlackHole()
		stored.await(t, 1000) // all of it by the other one
		close(resume)
		time.Sleep(time.Minute)
		if w.rollbacks.Load() == 0 {
			t.Error("the zombie's transaction was not rolled back")
		}
		zombie.host.Heal()
		broker.WaitStable(group, 2)
		before := zombie.delivered.Load()
		produce(broker, 1000)
		stored.await(t, 2000)
		if zombie.delivered.Load() == before {
			t.Error("it got nothing after it was back")
		}
		zombie.stop(t)
		steady.stop(t)
		stored.expectOnce(t, broker)
	})
}

// The zombie may be the quicker one. Then the owner's transaction is refused,
// and it goes on behind what the zombie has stored.
func TestOwnerIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, broker *memkafka.Broker, cfg *pgxpool.Config, stored table) {
		w := &wire{}
		stalled, resume := stallAtBegin(w)
		owner := startMember(t, broker, cfg, w)
		produce(broker, 1000)
		<-stalled
		// It has read partition by partition, and which one comes first is
		// not known: the zombie has seven records of each.
		if _, err := stored.db.Exec(t.Context(), `INSERT INTO offsets SELECT $1, p, 7 FROM generate_series(0, 3) p`, topic); err != nil {
			t.Fatal(err)
		}
		for _, r := range broker.Records(topic) {
			if r.Offset < 7 {
				if _, err := stored.db.Exec(t.Context(), `INSERT INTO records VALUES ($1, $2, $3, $4, $5)`,
					r.Topic, r.Partition, r.Offset, r.Key, r.Value); err != nil {
					t.Fatal(err)
				}
			}
		}
		close(resume)
		stored.await(t, 1000)
		if n := w.rollbacks.Load(); n != 4 {
			t.Errorf("%d transactions were rolled back, want one for each partition", n)
		}
		owner.stop(t)
		stored.expectOnce(t, broker)
	})
}

// A run begins where the one before ended, although Kafka knows nothing of it.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, broker *memkafka.Broker, cfg *pgxpool.Config, stored table) {
		for run := range 3 {
			m := startMember(t, broker, cfg, &wire{})
			produce(broker, 200)
			stored.await(t, 200*(run+1))
			m.stop(t)
			if n := m.delivered.Load(); n != 200 {
				t.Errorf("%d records were delivered to run %d, want the 200 new ones", n, run)
			}
		}
		stored.expectOnce(t, broker)
	})
}
