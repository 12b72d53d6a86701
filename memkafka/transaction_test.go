package memkafka_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTransactions(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		broker.ProduceTransaction("events")
		broker.ProduceAborted("events")
		if got := broker.End("events"); got[0] != 0 || got[1] != 0 {
			t.Errorf("transactions of nothing left something: %v", got)
		}
		broker.Produce("events", "a")                 // 0/0
		broker.ProduceAborted("events", "b", "c")     // 1/0, 0/1, markers at 1/1, 0/2
		broker.ProduceTransaction("events", "d", "e") // 1/2, 0/3, markers at 1/3, 0/4
		broker.Produce("events", "f")                 // 1/4
		want := []place{{0, 0, "a"}, {0, 3, "e"}, {1, 2, "d"}, {1, 4, "f"}}
		if diff := cmp.Diff(want, places(broker.Records("events"))); diff != "" {
			t.Error(diff)
		}
		if got := broker.End("events"); got[0] != 5 || got[1] != 5 {
			t.Errorf("the ends are %v", got)
		}
		for _, test := range []struct {
			level kgo.IsolationLevel
			want  []string
		}{
			{kgo.ReadCommitted(), []string{"a", "d", "e", "f"}},
			{kgo.ReadUncommitted(), []string{"a", "b", "c", "d", "e", "f"}},
		} {
			client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.FetchIsolationLevel(test.level))
			got := values(read(t, client, len(test.want)))
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("a client reads %q, not %q", got, test.want)
			}
		}
	})
}

func TestOpenTransaction(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("others", 1))
		tx, other := broker.BeginTransaction(), broker.BeginTransaction()
		tx.Produce("events", "a")
		broker.Produce("events", "b")
		tx.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("c")}, &kgo.Record{Topic: "others", Value: []byte("d")})
		other.Produce("events", "e")
		check := func(want ...string) {
			t.Helper()
			if got := values(broker.Records("events")); !slices.Equal(got, want) {
				t.Errorf("the topic has %q, not %q", got, want)
			}
		}
		check()
		tx.Commit()
		check("a", "b", "c")
		if got := values(broker.Records("others")); !slices.Equal(got, []string{"d"}) {
			t.Errorf("others has %q", got)
		}
		broker.Produce("events", "f")
		check("a", "b", "c")
		other.Abort()
		check("a", "b", "c", "f")
		broker.BeginTransaction().Produce("events", "open when the broker closes")
		check("a", "b", "c", "f")
	})
}

func TestTransactionTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		tx := broker.BeginTransaction()
		tx.Produce("events", "a")
		broker.Produce("events", "b")
		time.Sleep(14 * time.Minute)
		if got := broker.Records("events"); len(got) != 0 {
			t.Errorf("the transaction is over: %q", values(got))
		}
		time.Sleep(2 * time.Minute)
		if got := values(broker.Records("events")); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the topic has %q", got)
		}
		if err := panicOf(tx.Commit); err == nil {
			t.Error("a transaction that the broker has aborted was committed")
		}
	})
}

func TestTransactionsGiveUp(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.EndTxn} {
		t.Run(key.Name(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := open(t, memkafka.Topic("events", 1))
				broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.NotEnoughReplicas, Count: -1})
				begin := time.Now()
				if err := panicOf(func() { broker.ProduceTransaction("events", "a") }); err == nil {
					t.Fatal("it worked")
				}
				if took := time.Since(begin); took > 3*time.Minute {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// A transaction's client has just looked up the topic when the commit comes: kgo then aborts one of about seventy, unless
// the commit waits until it has noted the partitions. That takes real time.
func TestCommittedTransactionsAreThere(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 1))
	const rounds = 300
	for range rounds {
		tx := broker.BeginTransaction()
		tx.Produce("events", "a")
		tx.Commit()
	}
	if n := len(broker.Records("events")); n != rounds {
		t.Errorf("%d transactions of %d are there", n, rounds)
	}
}

// A call that fails, or does nothing, leaves nothing behind that later ones stumble over.
func TestProduceAfterNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		begin := time.Now()
		tx := broker.BeginTransaction()
		for _, produce := range []struct {
			values  func(string, ...string)
			records func(...*kgo.Record)
		}{{broker.Produce, broker.ProduceRecords}, {tx.Produce, tx.ProduceRecords}} {
			produce.values("events")
			if err := panicOf(func() { produce.records(&kgo.Record{Topic: "events"}, nil) }); err == nil {
				t.Error("a record that is none was produced")
			}
		}
		tx.Commit()
		broker.AddPartitions("events", 2)
		broker.Produce("events", "a", "b")
		if got := values(broker.Records("events")); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the topic has %q", got)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}
