package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

const (
	commits  = "events.commits"
	store    = "store" // the group that is followed
	behind   = "actions"
	promptly = 10 * time.Millisecond
)

func commitBroker(t *testing.T, partitions int) *memkafka.Broker {
	t.Helper()
	return memkafka.New(t, memkafka.Topic(topic, partitions), memkafka.Topic(commits, 2))
}

// sources are the ways to learn of others' commits.
var sources = map[string]arroyo.SyncSource{
	"commit log": arroyo.CommitLogTopic(commits),
	"offsets":    arroyo.GroupOffsets(100 * time.Millisecond),
}

// commitAs commits as an application of the followed group does that writes a
// commit log.
func commitAs(t *testing.T, broker *memkafka.Broker, group string, partition int32, offset int64) {
	t.Helper()
	client, err := kgo.NewClient(broker.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, partition, offset, -1)
	if err := kadm.NewClient(client).CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	e := arroyo.CommitLogEntry{Group: group, Partition: arroyo.Partition{Topic: topic, Number: partition}, Offset: offset}
	if err := client.ProduceSync(t.Context(), e.Record(commits)).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func followingConsumer(t *testing.T, broker *memkafka.Broker, source arroyo.SyncSource, opts []kgo.Opt, groups ...string) *arroyo.Consumer {
	t.Helper()
	consumer, err := arroyo.NewConsumer(behind, []string{topic},
		arroyo.ClientOptions(broker.ClientOptions()...), arroyo.ClientOptions(opts...), arroyo.Synchronize(source, groups...))
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

func startFollowing(t *testing.T, broker *memkafka.Broker, source arroyo.SyncSource, pipeline pipelineFunc, opts []kgo.Opt, groups ...string) *member {
	t.Helper()
	processor, err := arroyo.NewProcessor(followingConsumer(t, broker, source, opts, groups...), pipeline(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return &member{processor, memkafka.Start(t, processor.Run)}
}

// I14: a partition is read only as far as all followed groups have committed it,
// and at once when they have.
func TestI14ReadsAsFarAsOthersCommitted(t *testing.T) {
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := commitBroker(t, 2)
				var ledger ledger
				produce(broker, 200) // before the first fetch, which then sees its end
				m := startFollowing(t, broker, source, ledger.pipeline("m"), opts, store, "audit")
				broker.WaitStable(behind, 1)
				seen := func(want int) {
					t.Helper()
					time.Sleep(time.Second)
					if n := len(ledger.all()); n != want {
						t.Errorf("%d records were delivered, want %d", n, want)
					}
				}
				seen(0)
				commitAs(t, broker, store, 0, 50)
				seen(0) // audit has committed nothing
				commitAs(t, broker, "audit", 0, 30)
				seen(30)
				commitAs(t, broker, "somebody", 0, 100)
				seen(30)
				commitAs(t, broker, "audit", 0, 100)
				seen(50)
				commitAs(t, broker, "audit", 1, 100)
				commitAs(t, broker, store, 1, 1)
				seen(51)
				s := m.Status()
				if p := s.Partitions[1]; p.State != arroyo.PartitionGated || p.Gate != 1 || p.GateGroup != store || p.GatedFor < 800*time.Millisecond || p.GatedFor > time.Second || // since record 0 was let through
					p.GateLag != 0 || p.Lag != 99 {
					t.Errorf("status of the partition that waits: %+v", p)
				}
				commitAs(t, broker, store, 0, 40) // set back: nothing is taken back, and nothing comes
				seen(51)
				commitAs(t, broker, store, 0, 100)
				commitAs(t, broker, store, 1, 100)
				seen(200)
				for _, p := range m.Status().Partitions {
					if p.State != arroyo.PartitionFlows || p.GatedFor != 0 {
						t.Errorf("status at the end: %+v", p)
					}
				}
				m.shutDown(t)
				ledger.expectAll(t, broker, 0)
				ledger.expectOrder(t)
			})
		})
	}
}

// From a record of the commit log to the delivery it takes less than 10 ms, and
// without fetching the partition again.
func TestI14IsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := commitBroker(t, 1)
		var ledger ledger
		var fetches atomic.Int64
		m := startFollowing(t, broker, sources["commit log"], ledger.pipeline("m"), []kgo.Opt{kgo.WithHooks(fetchCounter{&fetches}), kgo.FetchMaxWait(time.Minute)}, store)
		broker.WaitStable(behind, 1)
		produce(broker, 1000)
		time.Sleep(10 * time.Second)
		before := fetches.Load()
		for i := range int64(100) {
			commitAs(t, broker, store, 0, 10*(i+1))
			time.Sleep(promptly)
			if n := len(ledger.all()); n != int(10*(i+1)) {
				t.Fatalf("%d records were delivered %v after the commit of %d", n, promptly, 10*(i+1))
			}
		}
		if n := fetches.Load() - before; n > 220 { // of the commit log, which is read with the same hook
			t.Errorf("%d fetches", n)
		}
		m.shutDown(t)
	})
}

// fetchCounter counts fetch requests.
type fetchCounter struct{ n *atomic.Int64 }

func (c fetchCounter) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Fetch) {
		c.n.Add(1)
	}
}

// A partition that waits parks what was fetched, up to a bound; beyond it is
// paused, and flows on when it is let through.
func TestI14WaitingPartitionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := commitBroker(t, 2)
		var ledger ledger
		var fetches atomic.Int64
		m := startFollowing(t, broker, sources["commit log"], ledger.pipeline("m"),
			[]kgo.Opt{kgo.WithHooks(fetchCounter{&fetches}), kgo.FetchMaxPartitionBytes(50_000)}, store)
		broker.WaitStable(behind, 1)
		for range 100 {
			produce(broker, 1000)
		}
		commitAs(t, broker, store, 1, 50_000)
		time.Sleep(time.Minute)
		if n := len(ledger.all()); n != 50_000 {
			t.Fatalf("%d records of the partition that does not wait were delivered", n)
		}
		before := fetches.Load()
		time.Sleep(10 * time.Minute)
		if n := fetches.Load() - before; n > 10*60*10 { // FetchMaxWait is 250 ms; of two topics
			t.Errorf("%d fetches in ten minutes", n)
		}
		commitAs(t, broker, store, 0, 50_000)
		broker.WaitCaughtUp(behind, topic)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// I14 with members that come and go in both groups, partitions that are added,
// and followed groups whose processor writes the commit log.
func TestI14UnderChurn(t *testing.T) {
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := commitBroker(t, 4)
				var (
					mu        sync.Mutex
					committed = make(map[int32]int64)
					ledger    ledger
				)
				broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					broker.Cluster().KeepControl()
					req := kreq.(*kmsg.OffsetCommitRequest)
					mu.Lock()
					defer mu.Unlock()
					for _, rt := range req.Topics {
						for _, rp := range rt.Partitions {
							if req.Group == store {
								committed[rp.Partition] = max(committed[rp.Partition], rp.Offset)
							}
						}
					}
					return nil, nil, false
				})
				startStore := func() *member {
					consumer, err := arroyo.NewConsumer(store, []string{topic}, arroyo.ClientOptions(broker.ClientOptions()...), arroyo.ClientOptions(opts...))
					if err != nil {
						t.Fatal(err)
					}
					processor, err := arroyo.NewProcessor(consumer, strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
						time.Sleep(5 * time.Millisecond)
						return nil
					}), quiet, arroyo.CommitLog(commits), arroyo.CommitInterval(200*time.Millisecond))
					if err != nil {
						t.Fatal(err)
					}
					return &member{processor, memkafka.Start(t, processor.Run)}
				}
				follower := func(by string) *member {
					return startFollowing(t, broker, source, func() arroyo.Strategy[*kgo.Record] {
						return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
							mu.Lock()
							at := committed[m.Payload.Partition]
							mu.Unlock()
							if m.Payload.Offset >= at {
								t.Errorf("offset %d of partition %d was delivered when %d was committed", m.Payload.Offset, m.Payload.Partition, at)
							}
							ledger.add(by, m.Payload)
							return nil
						})
					}, opts, store)
				}
				produce(broker, 400)
				one := follower("one")
				s1 := startStore()
				time.Sleep(3 * time.Second)
				two := follower("two")
				produce(broker, 400)
				time.Sleep(5 * time.Second)
				s2 := startStore()
				broker.AddPartitions(topic, 6)
				time.Sleep(5 * time.Second)
				s1.shutDown(t)
				produce(broker, 400)
				time.Sleep(10 * time.Second)
				one.shutDown(t)
				time.Sleep(10 * time.Second)
				s2.shutDown(t)
				produce(broker, 60) // nobody stores these
				broker.WaitCommitted(behind, topic, 1200)
				time.Sleep(20 * time.Second)
				two.shutDown(t)
				counts := ledger.counts()
				total := 0
				for _, n := range counts {
					total += n
				}
				if total != 1200 || len(counts) != 1200 {
					t.Errorf("%d records were delivered, %d of them different; want the 1200 that were stored, once", total, len(counts))
				}
			})
		})
	}
}

// While the source fails nothing is delivered, Failed says so once, and it goes
// on when the source does.
func TestI14SourceFails(t *testing.T) {
	for name, fail := range map[string]func(b *memkafka.Broker) *memkafka.Fault{
		"commit log": func(b *memkafka.Broker) *memkafka.Fault {
			return b.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed, memkafka.OnTopic(commits))
		},
		"offsets": func(b *memkafka.Broker) *memkafka.Fault {
			return b.Fail(kmsg.OffsetFetch, kerr.GroupAuthorizationFailed, memkafka.OfGroup(store))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := commitBroker(t, 1)
				commitAs(t, broker, store, 0, 5)
				c := followingConsumer(t, broker, sources[name], nil, store)
				defer c.Close()
				expect[*arroyo.Assigned](t, c)
				produce(broker, 100)
				if f := expect[*arroyo.Fetched](t, c); len(f.Records) != 5 || f.Next != 5 {
					t.Fatalf("%d records up to %d, want 5", len(f.Records), f.Next)
				}
				fault := fail(broker)
				f := expect[*arroyo.Failed](t, c)
				if !strings.Contains(f.Err.Error(), "nothing is delivered meanwhile") || !f.Fatal {
					t.Errorf("Failed: %+v", f)
				}
				commitAs(t, broker, store, 0, 50)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				if ev, err := c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("while the source fails: %T %+v, %v", ev, ev, err)
				}
				cancel()
				fault.Heal()
				if f := expect[*arroyo.Fetched](t, c); f.Records[0].Offset != 5 || f.Next != 50 {
					t.Errorf("records from %d up to %d, want 5 to 50", f.Records[0].Offset, f.Next)
				}
			})
		})
	}
}

func TestSynchronizeRefusesBadInput(t *testing.T) {
	for say, option := range map[string]arroyo.ConsumerOption{
		"no source":           arroyo.Synchronize(arroyo.SyncSource{}, store),
		"positive interval":   arroyo.Synchronize(arroyo.GroupOffsets(0), store),
		"no groups":           arroyo.Synchronize(arroyo.CommitLogTopic(commits)),
		"name is empty":       arroyo.Synchronize(arroyo.CommitLogTopic(commits), ""),
		"wait for itself":     arroyo.Synchronize(arroyo.CommitLogTopic(commits), store, behind),
		"this consumer reads": arroyo.Synchronize(arroyo.CommitLogTopic(topic), store),
	} {
		c, err := arroyo.NewConsumer(behind, []string{topic}, arroyo.ClientOptions(kgo.SeedBrokers("localhost:1")), option)
		var bad *arroyo.OptionError
		if !errors.As(err, &bad) || bad.Option != "Synchronize" || !strings.Contains(err.Error(), say) {
			t.Errorf("%v, want an OptionError that says %q", err, say)
		}
		if c != nil {
			c.Close()
		}
	}
	c, err := arroyo.NewConsumer(behind, []string{topic}, arroyo.ClientOptions(kgo.SeedBrokers("localhost:1")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), arroyo.CommitLog(topic)); err == nil || !strings.Contains(err.Error(), "CommitLog") {
		t.Errorf("a commit log that is read: %v", err)
	}
}

// The commit log has what is committed, also the last commit of a run, with the
// time of the last record.
func TestCommitLogIsWritten(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := commitBroker(t, 2)
		var ledger ledger
		m := start(t, broker, ledger.pipeline("m"), opts, arroyo.CommitLog(commits), arroyo.CommitInterval(time.Second))
		broker.WaitStable(group, 1)
		at := time.Now()
		produce(broker, 20)
		m.waitDone(t, 20)
		m.shutDown(t)
		last := make(map[string]arroyo.CommitLogEntry)
		for _, r := range broker.Records(commits) {
			e, err := arroyo.ReadCommitLogEntry(r)
			if err != nil {
				t.Fatal(err)
			}
			last[fmt.Sprint(e.Group, e.Partition.Number)] = e
		}
		for _, p := range []string{"ingest0", "ingest1"} {
			if e := last[p]; e.Offset != 10 || e.Partition.Topic != topic || e.Timestamp.Before(at.Add(-time.Second)) || e.Timestamp.After(time.Now()) {
				t.Errorf("the last entry of %s is %+v", p, e)
			}
		}
	})
}

// What was not committed, because the member lost its partitions while a commit
// waited for another one, is not in the commit log either.
func TestCommitLogHasOnlyWhatIsCommitted(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := commitBroker(t, 1)
		var ledger ledger
		m := start(t, broker, ledger.pipeline("m"), opts, arroyo.CommitLog(commits), arroyo.CommitInterval(time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(time.Second) // where the group begins is committed
		var unanswered []*memkafka.Fault
		for _, kind := range []kmsg.Key{kmsg.OffsetCommit, kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat} {
			unanswered = append(unanswered, broker.Swallow(kind))
		}
		produce(broker, 10)
		m.waitDone(t, 10)
		time.Sleep(44 * time.Second) // its lease ends, the session of it almost
		committed := broker.Committed(group, topic)[0]
		for _, r := range broker.Records(commits) {
			e, err := arroyo.ReadCommitLogEntry(r)
			if err != nil {
				t.Fatal(err)
			}
			if e.Offset > committed {
				t.Errorf("the log says that %d is committed; it is %d", e.Offset, committed)
			}
		}
		for _, f := range unanswered {
			f.Heal()
		}
		broker.WaitCommitted(group, topic, 10)
		m.shutDown(t)
	})
}

// The commit log ends with what is committed, also when an older commit waited for
// a rebalance while the last one was made.
func TestCommitLogEndsWithTheLastCommit(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := commitBroker(t, 2)
		var ledger ledger
		m := start(t, broker, ledger.pipeline("m"), opts, arroyo.CommitLog(commits), arroyo.CommitInterval(time.Second), arroyo.DrainTimeout(5*time.Second))
		broker.WaitStable(group, 1)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		rival.Die()
		broker.ForceRebalance(group) // waits for the rival
		for range 15 {
			produce(broker, 2)
			time.Sleep(700 * time.Millisecond)
		}
		m.shutDown(t)
		last := make(map[int32]int64)
		for _, r := range broker.Records(commits) {
			e, err := arroyo.ReadCommitLogEntry(r)
			if err != nil {
				t.Fatal(err)
			}
			if p := e.Partition.Number; e.Offset >= last[p] {
				last[p] = e.Offset
			} else {
				t.Errorf("%d of partition %d was written to the log after %d", e.Offset, p, last[p])
			}
		}
		committed := broker.Committed(group, topic)
		for p := range int32(2) {
			if last[p] != committed[p] {
				t.Errorf("the log ends with %d of partition %d; committed is %d", last[p], p, committed[p])
			}
		}
		if committed[0]+committed[1] == 0 {
			t.Error("nothing was committed")
		}
	})
}

// waitDone waits until so many records are settled.
func (m *member) waitDone(t *testing.T, n int64) {
	t.Helper()
	for range 1000 {
		sum := int64(0)
		for _, p := range m.Status().Partitions {
			sum += p.Watermark
		}
		if sum == n {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%d records are not done", n)
}
