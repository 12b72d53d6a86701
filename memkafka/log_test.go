package memkafka_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stripped removes what is random from a log.
func stripped(log string) string {
	log = regexp.MustCompile(`-[0-9a-f]{32}`).ReplaceAllString(log, "-ID")
	return regexp.MustCompile(`as [A-Za-z0-9_-]{22}==`).ReplaceAllString(log, "as ID")
}

// mustHaveInOrder checks that the log has lines that end so, in this order.
func mustHaveInOrder(t *testing.T, log string, want ...string) {
	t.Helper()
	rest := stripped(log)
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("the log lacks %q, or has it too early:\n%s", w, stripped(log))
		}
		rest = after
	}
}

func TestLogOfAGroup(t *testing.T) {
	for _, name := range classic {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 4))
				protocol := map[string]string{"cooperative": "cooperative-sticky", "eager": "range"}[name]
				client := newClient(t, broker, append([]kgo.Opt{
					kgo.ClientID("me"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(),
				}, protocols[name]...)...)
				broker.WaitStable("g", 1)
				rival := broker.Join("g", "events", protocols[name]...)
				broker.WaitStable("g", 2)
				broker.Fail(kmsg.OffsetCommit, kerr.CoordinatorNotAvailable, memkafka.OnPartitions(1), memkafka.Times(1))
				commit := client.CommitOffsetsSync
				for range 2 {
					commit(t.Context(), map[string]map[int32]kgo.EpochOffset{"events": {0: {Offset: 7}, 1: {Offset: 8}}}, nil)
				}
				rival.Die()
				time.Sleep(time.Minute)
				broker.Down()
				broker.Up()
				client.Close()
				mustHaveInOrder(t, broker.Log(),
					`0.000s  group "g": client "me" at 10.0.0.2 joined generation 1, `+protocol+`, as me-ID (leader of 1)`,
					`0.000s  group "g": client "me" at 10.0.0.2 has events[0 1 2 3] in generation 1`,
					`group "g": rival "rival-1" at 10.0.0.3 is to join`,
					`group "g": client "me" at 10.0.0.2 heartbeats: REBALANCE_IN_PROGRESS`,
					`joined generation 2, `+protocol,
					`fault in force: Fail(OffsetCommit, COORDINATOR_NOT_AVAILABLE, OnPartitions(1), Times(1))`,
					`fault hits client "me" at 10.0.0.2: Fail(OffsetCommit, COORDINATOR_NOT_AVAILABLE, OnPartitions(1), Times(1))`,
					`group "g": client "me" at 10.0.0.2 commits events[0]=7`,
					`group "g": client "me" at 10.0.0.2 commits events[1]=8: COORDINATOR_NOT_AVAILABLE`,
					`group "g": client "me" at 10.0.0.2 commits events[0]=7 events[1]=8`,
					`group "g": rival "rival-1" at 10.0.0.3 dies`,
					`group "g": client "rival-1" at 10.0.0.3 is expired: nothing was heard of it for 45s`,
					`group "g": client "me" at 10.0.0.2 heartbeats: REBALANCE_IN_PROGRESS`,
					`has events[0 1 2 3] in generation`,
					"s  all brokers are down\n",
					"s  all brokers are up\n",
					`now; requests so far:`, ` Fetch `, ` Heartbeat `,
				)
			})
		})
	}
}

func TestLogOfAKIP848Group(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 4))
		rival := broker.Join("g", "events", kgo.ServerSideBalancer(), kgo.ClientID("me"))
		broker.WaitStable("g", 1)
		dies := broker.Join("g", "events", kgo.ServerSideBalancer())
		broker.WaitStable("g", 2)
		broker.Fail(kmsg.ConsumerGroupHeartbeat, kerr.FencedMemberEpoch, memkafka.OfMember("me"), memkafka.Times(1)).Wait(1)
		time.Sleep(time.Second)
		broker.WaitStable("g", 2)
		dies.Die()
		broker.WaitStable("g", 1)
		time.Sleep(10 * time.Second)
		broker.Kick("g", "me")
		broker.WaitStable("g", 1)
		rival.Leave()
		mustHaveInOrder(t, broker.Log(),
			`group "g": client "me" at 10.0.0.2 joined at epoch 1, KIP-848, as ID`,
			`group "g": client "me" at 10.0.0.2 is to have events[0 1 2 3] at epoch 1`,
			`group "g": client "me" at 10.0.0.2 heartbeats: FENCED_MEMBER_EPOCH`,
			`group "g": rival "rival-2" at 10.0.0.3 dies`,
			`group "g": client "rival-2" at 10.0.0.3 is expired: nothing was heard of it for 45s`,
			`group "g": client "me" at 10.0.0.2 was kicked out`,
			`group "g": client "me" at 10.0.0.2 heartbeats: UNKNOWN_MEMBER_ID`,
			`group "g": rival "me" at 10.0.0.2 leaves`,
			`group "g": client "me" at 10.0.0.2 left`,
		)
	})
}

// The log of a long test is bounded, and the same line over and over is one.
func TestLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		for range 10 {
			broker.Down()
		}
		mustContain(t, broker.Log(), "all brokers are down (10 times until 0.000s)")
		for range 1000 {
			broker.Down()
			broker.Up()
			time.Sleep(time.Second)
		}
		log := broker.Log()
		if n := strings.Count(log, "\n"); n != 502 {
			t.Errorf("%d lines", n)
		}
		mustContain(t, log, "(1500 lines before these are lost)\n", "\n    999.000s  all brokers are up\n", "\n   1000.000s  now")
	})
}

func TestFailingTestPrintsTheLog(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		test := func(fail bool) func(testing.TB) {
			return func(t testing.TB) {
				broker := memkafka.New(t, memkafka.Topic("events", 1))
				broker.Join("g", "events")
				broker.WaitStable("g", 1)
				if fail {
					t.Errorf("for a reason of its own")
				}
			}
		}
		complaints, logs := runFakeLogged(t, test(true))
		mustContain(t, complaints, "for a reason of its own")
		mustContain(t, logs, "what happened at the broker", `client "rival-1" at 10.0.0.2 has events[0]`)
		if complaints, logs := runFakeLogged(t, test(false)); complaints+logs != "" {
			t.Errorf("a test that passes: %s%s", complaints, logs)
		}
	})
}

func ExampleBroker_Log() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	client, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ClientID("ingester"), kgo.ConsumerGroup("ingest"), kgo.DisableAutoCommit())...)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{"events": {0: {Offset: 3}}}, nil)
	for line := range strings.Lines(broker.Log()) {
		_, event, _ := strings.Cut(line, "s  ") // without the time
		if strings.Contains(event, "commits") {
			fmt.Print(event)
		}
	}
	// Output: group "ingest": client "ingester" at 10.0.0.2 commits events[0]=3
}
