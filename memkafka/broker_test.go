package memkafka_test

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestBadOptions(t *testing.T) {
	for name, test := range map[string]struct {
		opts []memkafka.Option
		want []string
	}{
		"no name":         {[]memkafka.Option{memkafka.Topic("", 1)}, []string{"option Topic", "needs a name"}},
		"illegal name":    {[]memkafka.Option{memkafka.Topic("a b", 1)}, []string{"option Topic", `"a b"`, "letters"}},
		"dots":            {[]memkafka.Option{memkafka.Topic("..", 1)}, []string{`".."`}},
		"long name":       {[]memkafka.Option{memkafka.Topic(strings.Repeat("x", 250), 1)}, []string{"249"}},
		"no partitions":   {[]memkafka.Option{memkafka.Topic("a", 0)}, []string{`"a" with 0 partitions`, "give 1"}},
		"negative":        {[]memkafka.Option{memkafka.Topic("a", -1)}, []string{"-1"}},
		"topic twice":     {[]memkafka.Option{memkafka.Topic("a", 1), memkafka.Topic("a", 2)}, []string{`"a"`, "exists already"}},
		"names too alike": {[]memkafka.Option{memkafka.Topic("a.b", 1), memkafka.Topic("a_b", 2)}, []string{`"a_b"`, "differs only"}},
		"no brokers":      {[]memkafka.Option{memkafka.Brokers(0)}, []string{"option Brokers", "give 1"}},
		"many brokers":    {[]memkafka.Option{memkafka.Brokers(101)}, []string{"option Brokers", "101"}},
		"nil":             {[]memkafka.Option{nil}, []string{"nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			broker, err := memkafka.Open(test.opts...)
			if err == nil {
				broker.Close()
				t.Fatal("Open accepted it")
			}
			mustContain(t, err.Error(), append(test.want, "memkafka: ")...)

			got := runFake(t, func(t testing.TB) {
				memkafka.New(t, test.opts...)
				t.Errorf("New returned")
			})
			mustContain(t, got, test.want...)
			if strings.Contains(got, "New returned") {
				t.Error("New returned, and did not end the test")
			}
		})
	}
}

var badOperations = map[string]struct {
	do   func(*memkafka.Broker)
	want string
}{
	"CreateTopic twice":      {func(b *memkafka.Broker) { b.CreateTopic("events", 1) }, `create topic "events": it exists already`},
	"CreateTopic bad name":   {func(b *memkafka.Broker) { b.CreateTopic("a/b", 1) }, `topic "a/b"`},
	"Produce":                {func(b *memkafka.Broker) { b.Produce("evnts", "a") }, `topic "evnts" does not exist: create it`},
	"ProduceRecords topic":   {func(b *memkafka.Broker) { b.ProduceRecords(&kgo.Record{Topic: "evnts"}) }, `record 0: topic "evnts" does not exist`},
	"ProduceRecords nowhere": {func(b *memkafka.Broker) { b.ProduceRecords(&kgo.Record{}) }, `topic "" does not exist`},
	"ProduceRecords nil":     {func(b *memkafka.Broker) { b.ProduceRecords(nil...); b.ProduceRecords(nil, nil) }, `record 0 is nil`},
	"ProduceRecords partition": {func(b *memkafka.Broker) {
		b.ProduceRecords(&kgo.Record{Topic: "events"}, &kgo.Record{Topic: "events", Partition: 2})
	}, `record 1: topic "events" has no partition 2, only 0 to 1`},
	"Records":             {func(b *memkafka.Broker) { b.Records("evnts") }, `topic "evnts" does not exist`},
	"WaitCommitted topic": {func(b *memkafka.Broker) { b.WaitCommitted("g", "evnts", 1) }, `topic "evnts" does not exist`},
	"Join topic":          {func(b *memkafka.Broker) { b.Join("g", "evnts") }, `join group "g": topic "evnts" does not exist`},
	"Join group":          {func(b *memkafka.Broker) { b.Join("", "events") }, `needs a name`},
	"Join options": {func(b *memkafka.Broker) { b.Join("g", "events", kgo.AutoCommitMarks()) },
		`join group "g":`},
}

func TestFailedOperationsEndTheTest(t *testing.T) {
	for name, test := range badOperations {
		t.Run(name, func(t *testing.T) {
			got := runFake(t, func(t testing.TB) {
				test.do(memkafka.New(t, memkafka.Topic("events", 2)))
				t.Errorf("went on")
			})
			mustContain(t, got, "memkafka: ", test.want)
			if strings.Contains(got, "went on") {
				t.Error("the test went on")
			}
		})
	}
}

func TestFailedOperationsPanicWithoutATest(t *testing.T) {
	broker := open(t, memkafka.Topic("events", 2))
	for name, test := range badOperations {
		t.Run(name, func(t *testing.T) {
			err := panicOf(func() { test.do(broker) })
			if err == nil {
				t.Fatal("no panic")
			}
			mustContain(t, err.Error(), "memkafka: ", test.want)
		})
	}
	if got := broker.Records("events"); len(got) != 0 {
		t.Errorf("failed operations left %d records", len(got))
	}
}

func TestClosedBroker(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		rival := broker.Join("g", "events")
		broker.Close()
		broker.Close()
		for name, do := range map[string]func(){
			"CreateTopic":    func() { broker.CreateTopic("b", 1) },
			"Produce":        func() { broker.Produce("events", "a") },
			"ProduceRecords": func() { broker.ProduceRecords(&kgo.Record{Topic: "events"}) },
			"Records":        func() { broker.Records("events") },
			"Committed":      func() { broker.Committed("g", "events") },
			"WaitCommitted":  func() { broker.WaitCommitted("g", "events", 1) },
			"Members":        func() { broker.Members("g") },
			"WaitStable":     func() { broker.WaitStable("g", 1) },
			"Join":           func() { broker.Join("g", "events") },
			"Assigned":       func() { rival.Assigned() },
		} {
			if err := panicOf(do); err == nil {
				t.Errorf("%s works on a closed broker", name)
			} else {
				mustContain(t, err.Error(), "the broker is closed")
			}
		}
		rival.Leave()
		rival.Die()
		broker.Down()
		broker.Up()
	})
}

func TestCloseWhileInUse(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 4))
		var users sync.WaitGroup
		for _, use := range []func(){
			func() { broker.WaitStable("g", 17) },
			func() { broker.WaitCommitted("g", "events", 17) },
			func() {
				for {
					broker.Produce("events", "a", "b", "c")
				}
			},
			func() {
				for {
					broker.Records("events")
				}
			},
			func() {
				for {
					broker.Join("g", "events").Leave()
				}
			},
			func() {
				for {
					broker.Members("g")
				}
			},
		} {
			users.Go(func() {
				if err := panicOf(use); err == nil {
					t.Error("no panic")
				}
			})
		}
		for range 3 {
			users.Go(broker.Close)
		}
		users.Wait()
	})
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	before := goleak.IgnoreCurrent()
	broker, err := memkafka.Open(memkafka.Topic("events", 4), memkafka.Brokers(3))
	if err != nil {
		t.Fatal(err)
	}
	broker.Produce("events", "a", "b", "c")
	broker.Join("g", "events")
	broker.Join("g", "events", kgo.BlockRebalanceOnPoll())
	broker.Join("h", "events", kgo.ServerSideBalancer())
	client, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ConsumeTopics("events"))...)
	if err != nil {
		t.Fatal(err)
	}
	read(t, client, 3)
	client.Close()
	broker.WaitStable("h", 1)
	broker.Close()
	goleak.VerifyNone(t, before)
}

func TestTheTestClosesTheBroker(t *testing.T) {
	var dial dialer
	if got := runFake(t, func(tb testing.TB) {
		dial = newDialer(t, memkafka.New(tb, memkafka.Topic("events", 1)))
		if conn, err := dial(t.Context(), "tcp", "127.0.0.1:9092"); err != nil {
			tb.Error(err)
		} else {
			conn.Close()
		}
	}); got != "" {
		t.Fatal(got)
	}
	if _, err := dial(t.Context(), "tcp", "127.0.0.1:9092"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial of a broker whose test is over: %v", err)
	}
}

func TestManyBrokers(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 5))
		broker.CreateTopic("more", 5)
		admin := kadm.NewClient(newClient(t, broker))
		for _, topic := range []string{"events", "more"} {
			details, err := admin.ListTopics(t.Context(), topic)
			if err != nil {
				t.Fatal(err)
			}
			for p, d := range details[topic].Partitions {
				if d.Leader != p%3 {
					t.Errorf("partition %d of %s is led by %d", p, topic, d.Leader)
				}
			}
			broker.Produce(topic, "a", "b", "c", "d", "e")
			if n := len(broker.Records(topic)); n != 5 {
				t.Errorf("%d records in %s", n, topic)
			}
		}
	})
}

// A moved leader is not a truncated log.
func TestMovedLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 1))
		client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"))
		total := 0
		for i := range 6 {
			broker.Produce("events", "a", "b", "c")
			total += len(read(t, client, 3))
			if err := broker.Cluster().MoveTopicPartition("events", 0, int32(i%3)); err != nil {
				t.Fatal(err)
			}
		}
		broker.Produce("events", "z")
		total += len(read(t, client, 1))
		if total != 19 || len(broker.Records("events")) != 19 {
			t.Errorf("read %d records of 19", total)
		}
	})
}

// kfake would have members beat ten times a second in test binaries.
func TestHeartbeatsAreKafkas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1))
		beats := 0
		broker.Cluster().ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
			beats++
			return nil, nil, false
		})
		rival := broker.Join("g", "events", kgo.ServerSideBalancer())
		broker.WaitStable("g", 1)
		time.Sleep(time.Minute)
		rival.Leave()
		if beats < 12 || beats > 20 {
			t.Errorf("%d heartbeats in a minute", beats)
		}
	})
}
