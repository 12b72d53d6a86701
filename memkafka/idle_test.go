package memkafka_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// idler is a client that has read the topic events, of two partitions, to its end, and has been idle for a while.
type idler struct {
	*kgo.Client
	broker *memkafka.Broker
}

const idleWait = 250 * time.Millisecond

func newIdler(t *testing.T, brokers int, opts ...kgo.Opt) idler {
	t.Helper()
	broker := memkafka.New(t, memkafka.Brokers(brokers), memkafka.Topic("events", 2))
	client := newClient(t, broker, append([]kgo.Opt{
		kgo.ConsumeTopics("events"), kgo.FetchMaxWait(idleWait), kgo.MetadataMinAge(10 * time.Millisecond),
	}, opts...)...)
	broker.Produce("events", "a", "b")
	read(t, client, 2)
	c := idler{client, broker}
	c.idle(t, 10*time.Second)
	return c
}

// next reads a record, and gives up after a while.
func (c idler) next(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		if records := c.PollFetches(ctx).Records(); len(records) > 0 {
			return string(records[0].Value)
		}
	}
	t.Fatal("there is no record")
	return ""
}

// idle waits, in which nothing may come.
func (c idler) idle(t *testing.T, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if got := c.PollFetches(ctx); got.NumRecords() > 0 {
		t.Errorf("read %q", values(got.Records()))
	}
}

// What is to be read by a client that is idle is read at once, whoever has written it and however.
func TestIdleFetchSeesAtOnce(t *testing.T) {
	for name, produce := range map[string]func(t *testing.T, c idler) (want string){
		"a record": func(t *testing.T, c idler) string {
			c.broker.Produce("events", "c")
			return "c"
		},
		"a record of another client": func(t *testing.T, c idler) string {
			produceWith(t, c.broker, "c")
			return "c"
		},
		"a record that is not acknowledged": func(t *testing.T, c idler) string {
			produceWith(t, c.broker, "c", kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
			return "c"
		},
		"a record whose acknowledgement is lost": func(t *testing.T, c idler) string {
			fault := c.broker.Swallow(kmsg.Produce, memkafka.Applied(), memkafka.Times(1))
			client, err := kgo.NewClient(c.broker.ClientOptions()...)
			if err != nil {
				t.Fatal(err)
			}
			memkafka.Start(t, func(ctx context.Context) error {
				defer client.Close()
				client.Produce(ctx, &kgo.Record{Topic: "events", Value: []byte("c")}, nil)
				<-ctx.Done()
				return nil
			})
			fault.Wait(1)
			return "c"
		},
		"a committed transaction": func(t *testing.T, c idler) string {
			tx := c.broker.BeginTransaction()
			tx.Produce("events", "c")
			c.idle(t, time.Minute)
			tx.Commit()
			return "c"
		},
		"what an aborted transaction held up": func(t *testing.T, c idler) string {
			tx := c.broker.BeginTransaction()
			tx.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("c")})
			c.broker.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("d")})
			c.idle(t, time.Minute)
			tx.Abort()
			return "d"
		},
		"a record behind a gap": func(t *testing.T, c idler) string {
			c.broker.Skip("events", 0, 10)
			c.idle(t, time.Minute)
			c.broker.Produce("events", "c")
			return "c"
		},
		"a record, with kfake in other hands": func(t *testing.T, c idler) string {
			c.broker.Cluster() // whose methods do not tell
			c.broker.Produce("events", "c")
			return "c"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newIdler(t, 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
				for range 3 {
					want := produce(t, c)
					at := time.Now()
					if got := c.next(t); got != want {
						t.Errorf("read %q, want %q", got, want)
					}
					if took := time.Since(at); took > time.Millisecond {
						t.Errorf("read after %v", took)
					}
					c.idle(t, 10*time.Second+70*time.Millisecond)
				}
			})
		})
	}
}

func produceWith(t *testing.T, broker *memkafka.Broker, value string, opts ...kgo.Opt) {
	client, err := kgo.NewClient(append(broker.ClientOptions(), opts...)...)
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	client.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte(value)})
}

// A transaction that times out does so without a request.
func TestIdleFetchSeesATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newIdler(t, 1, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		c.broker.BeginTransaction().ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("c")})
		began := time.Now()
		c.broker.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("d")})
		c.idle(t, 14*time.Minute)
		c.next(t)
		if took := time.Since(began); took < 15*time.Minute || took > 15*time.Minute+2*idleWait {
			t.Errorf("read after %v, want the 15 minutes that a transaction may take", took)
		}
	})
}

// Whatever happens to a partition, an idle client notices as soon as any other.
func TestIdleFetchNotices(t *testing.T) {
	const soon = 2 * idleWait
	for name, test := range map[string]func(t *testing.T, c idler) (fault *memkafka.Fault, err error){
		"a leader that has moved": func(_ *testing.T, c idler) (*memkafka.Fault, error) {
			c.broker.MoveLeader("events", 0, 1)
			c.broker.ProduceRecords(&kgo.Record{Topic: "events", Value: []byte("c")})
			return nil, nil
		},
		"a topic that is deleted": func(_ *testing.T, c idler) (*memkafka.Fault, error) {
			c.broker.DeleteTopic("events")
			return nil, kerr.UnknownTopicID
		},
		"a fault": func(_ *testing.T, c idler) (*memkafka.Fault, error) {
			return c.broker.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed), kerr.TopicAuthorizationFailed
		},
		"a fault of one partition": func(_ *testing.T, c idler) (*memkafka.Fault, error) {
			return c.broker.Fail(kmsg.Fetch, kerr.TopicAuthorizationFailed, memkafka.OnPartitions(1)), kerr.TopicAuthorizationFailed
		},
		"a fault of kfake": func(_ *testing.T, c idler) (*memkafka.Fault, error) {
			c.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed})
			return nil, kerr.TopicAuthorizationFailed
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newIdler(t, 2)
				fault, want := test(t, c)
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				fetches := c.PollFetches(ctx)
				if want == nil && fetches.NumRecords() != 1 {
					t.Errorf("no record but %v", fetches.Err())
				}
				if want != nil && !strings.Contains(fetches.Err().Error(), want.Error()) {
					t.Errorf("%v, want %v", fetches.Err(), want)
				}
				if took := time.Since(began); took > soon && name != "a topic that is deleted" { // kgo looks at metadata first
					t.Errorf("noticed after %v", took)
				}
				if fault != nil {
					fault.Heal()
				}
			})
		})
	}
}

// A leader that moves is noticed though nothing is produced.
func TestIdleFetchNoticesAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newIdler(t, 2)
		c.broker.MoveLeader("events", 0, 1)
		c.idle(t, time.Second)
		if leader, _, err := c.PartitionLeader("events", 0); leader != 1 || err != nil {
			t.Errorf("the client takes broker %d for the leader, %v", leader, err)
		}
	})
}

// The client fetches as often as it would if kfake was asked each time, and its session goes on, also by another
// connection.
func TestIdleFetchesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		host := broker.Host()
		var mu sync.Mutex
		var fetches []string
		client, err := kgo.NewClient(append(host.ClientOptions(), kgo.ConsumeTopics("events"), kgo.FetchMaxWait(idleWait),
			kgo.WithHooks(fetchHook{func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					fetches = append(fetches, time.Now().Format(".000"))
				}
			}}))...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c := idler{client, broker}
		broker.Produce("events", "a", "b")
		read(t, client, 2)
		since := func() (at []string) {
			mu.Lock()
			defer mu.Unlock()
			defer func() { fetches = nil }()
			return fetches
		}
		c.idle(t, 1100*time.Millisecond)
		since()
		c.idle(t, 2*time.Second)
		if diff := cmp.Diff([]string{".250", ".500", ".750", ".000", ".250", ".500", ".750", ".000"}, since()); diff != "" {
			t.Errorf("fetches: %s", diff)
		}
		// One ends with the record; kfake is asked again, in the same session, and then it goes on as before.
		broker.Produce("events", "c")
		c.next(t)
		c.idle(t, 900*time.Millisecond)
		if diff := cmp.Diff([]string{".100", ".350", ".600", ".850"}, since()); diff != "" {
			t.Errorf("fetches: %s", diff)
		}
		// A change elsewhere does not make a wait longer.
		broker.CreateTopic("unrelated", 1)
		c.idle(t, time.Second)
		if diff := cmp.Diff([]string{".100", ".350", ".600", ".850"}, since()); diff != "" {
			t.Errorf("fetches: %s", diff)
		}
		// Nor does a fault that is for none, or one that delays a fetch, end the session.
		broker.Delay(kmsg.Fetch, 20*time.Millisecond, memkafka.Times(1))
		c.idle(t, time.Second)
		if diff := cmp.Diff([]string{".100", ".370", ".620", ".870"}, since()); diff != "" {
			t.Errorf("fetches: %s", diff)
		}

		failed := broker.Fail(kmsg.Fetch, kerr.InvalidFetchSessionEpoch, memkafka.Times(1)) // is one that kgo gets over
		for range 3 {
			host.Cut()
			time.Sleep(time.Second)
			host.Heal()
			c.idle(t, 5*time.Second)
			broker.Produce("events", "c")
			if got := c.next(t); got != "c" {
				t.Errorf("read %q", got)
			}
			c.idle(t, 5*time.Second)
		}
		if n := failed.Hits(); n != 1 {
			t.Errorf("%d hits", n)
		}
		kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, "other")
		broker.Produce("other", "d")
		client.AddConsumeTopics("other") // changes the session
		if got := c.next(t); got != "d" {
			t.Errorf("read %q", got)
		}
	})
}

type fetchHook struct{ fetched func(error) }

func (h fetchHook) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Fetch) {
		h.fetched(e2e.Err())
	}
}
