package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// process runs a pipeline until records with these values are committed, or
// the run ends by itself. The examples use it.
func process(pipeline arroyo.Strategy[*kgo.Record], values ...string) error {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("events", values...)
	return processTopic(broker, pipeline)
}

// processTopic is process for what is in the topic "events" already.
func processTopic(broker *memkafka.Broker, pipeline arroyo.Strategy[*kgo.Record]) error {
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	processor, err := arroyo.NewProcessor(consumer, pipeline,
		arroyo.CommitInterval(time.Millisecond),
		arroyo.Hooks(&endAt{n: len(broker.Records("events")), stop: cancel, offsets: make(map[arroyo.Epoch]int64)}),
		arroyo.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	return processor.Run(ctx)
}

// endAt is a hook that calls stop when n records are committed.
type endAt struct {
	n       int
	stop    func()
	offsets map[arroyo.Epoch]int64
}

func (e *endAt) OnCommitted(offsets map[arroyo.Epoch]int64, _ time.Duration, _ error) {
	maps.Copy(e.offsets, offsets)
	sum := int64(0)
	for v := range maps.Values(e.offsets) {
		sum += v
	}
	if sum >= int64(e.n) {
		e.stop()
	}
}

// flaky fails every other time.
type flaky struct{ calls int }

func (f *flaky) insert(row string) error {
	if f.calls++; f.calls%2 == 1 {
		return fmt.Errorf("call %d: connection refused", f.calls)
	}
	fmt.Println("insert", row)
	return nil
}

func ExampleRunTask() {
	err := process(
		strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (int, error) {
			var n int
			if _, err := fmt.Sscan(string(m.Payload.Value), &n); err != nil {
				return 0, arroyo.Drop // or arroyo.Invalid(err), for the dead letters
			}
			return n * n, nil
		}, strategies.ForEach(func(_ context.Context, m arroyo.Message[int]) error {
			fmt.Println(m.Payload)
			return nil
		})),
		"2", "three", "4")
	fmt.Println(err)
	// Output:
	// 4
	// 16
	// <nil>
}

func ExampleForEach() {
	err := process(
		strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			fmt.Printf("%s at offset %d\n", m.Payload.Value, m.Payload.Offset)
			return nil
		}),
		"a", "b")
	fmt.Println(err)
	// Output:
	// a at offset 0
	// b at offset 1
	// <nil>
}

func ExampleForEachBatch() {
	err := process(
		strategies.ForEachBatch(3, time.Millisecond, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			for _, row := range rows {
				fmt.Println("insert", string(row.Payload.Value))
			}
			return nil
		}),
		"a", "b", "c")
	fmt.Println(err)
	// Output:
	// insert a
	// insert b
	// insert c
	// <nil>
}

func ExampleRetry() {
	db := new(flaky)
	err := process(
		strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			return db.insert(string(m.Payload.Value))
		}, strategies.Retry(strategies.RetryPolicy{
			Attempts: 5,
			Min:      time.Millisecond,
			Max:      time.Second,
			GiveUp:   arroyo.Invalid, // then it is a dead letter
		})),
		"a", "b")
	fmt.Println(err, "after", db.calls, "calls")
	// Output:
	// insert a
	// insert b
	// <nil> after 4 calls
}

func ExampleTimeout() {
	err := process(
		strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
			<-ctx.Done() // a server that does not answer
			return ctx.Err()
		}, strategies.Timeout(10*time.Millisecond), strategies.Name("ask")),
		"a")
	fmt.Println(err)
	// Output:
	// arroyo: step ask at events/0 offset 0: not done within 10ms: context deadline exceeded
}

func ExampleName() {
	err := process(
		strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
			return fmt.Errorf("disk full")
		}, strategies.Name("archive")),
		"a")
	fmt.Println(err)
	// Output:
	// arroyo: step archive at events/0 offset 0: disk full
}

// lookUp asks a server that takes a while.
func lookUp(_ context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
	return strings.ToUpper(string(m.Payload.Value)), nil
}

func ExampleRunTaskInParallel() {
	err := process(
		strategies.RunTaskInParallel(200, lookUp,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
				fmt.Println(m.Payload) // in order
				return nil
			}),
			strategies.Timeout(5*time.Second),
			strategies.Retry(strategies.RetryPolicy{Attempts: 3})),
		"a", "b", "c")
	fmt.Println(err)
	// Output:
	// A
	// B
	// C
	// <nil>
}

func ExampleRunTaskByKey() {
	// The first word of a value is the account that it is about.
	account := func(m arroyo.Message[*kgo.Record]) string {
		name, _, _ := strings.Cut(string(m.Payload.Value), " ")
		return name
	}
	err := process(
		strategies.RunTaskByKey(200, account, lookUp,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
				fmt.Println(m.Payload) // in order for each account
				return nil
			})),
		"bob pays", "eve pays", "bob leaves", "eve leaves")
	fmt.Println(err)
	// Unordered output:
	// BOB PAYS
	// BOB LEAVES
	// EVE PAYS
	// EVE LEAVES
	// <nil>
}

func ExampleRunTaskUnordered() {
	err := process(
		strategies.RunTaskUnordered(200, lookUp,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
				fmt.Println(m.Payload)
				return nil
			})),
		"a", "b", "c")
	fmt.Println(err)
	// Unordered output:
	// A
	// B
	// C
	// <nil>
}

func ExampleRoute() {
	type payment struct{ Amount int }
	type refund struct{ Of string }
	kind := func(m arroyo.Message[*kgo.Record]) string { return string(m.Payload.Key) }
	broker := open(
		&kgo.Record{Topic: "events", Key: []byte("payment"), Value: []byte(`{"Amount":12}`)},
		&kgo.Record{Topic: "events", Key: []byte("refund"), Value: []byte(`{"Of":"a"}`)},
		&kgo.Record{Topic: "events", Key: []byte("ping")})
	defer broker.Close()
	err := processTopic(broker, strategies.Route(kind, strategies.Branches[*kgo.Record]{
		"payment": strategies.RunTask(strategies.JSON,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[payment]) error {
				fmt.Println("payment of", m.Payload.Amount)
				return nil
			})),
		"refund": strategies.RunTask(strategies.JSON,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[refund]) error {
				fmt.Println("refund of", m.Payload.Of)
				return nil
			})),
		strategies.Fallback: strategies.Noop[*kgo.Record](),
	}))
	fmt.Println(err)
	// Unordered output:
	// payment of 12
	// refund of a
	// <nil>
}

func ExampleRouteByHeader() {
	broker := open(
		&kgo.Record{Topic: "events", Value: []byte("a"), Headers: []kgo.RecordHeader{{Key: "priority", Value: []byte("high")}}},
		&kgo.Record{Topic: "events", Value: []byte("b")})
	defer broker.Close()
	show := func(what string) arroyo.Strategy[*kgo.Record] {
		return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			fmt.Println(what, string(m.Payload.Value))
			return nil
		})
	}
	err := processTopic(broker, strategies.RouteByHeader("priority", strategies.Branches[*kgo.Record]{
		"high":              show("at once:"),
		strategies.Fallback: show("some time:"),
	}))
	fmt.Println(err)
	// Unordered output:
	// at once: a
	// some time: b
	// <nil>
}

func ExampleRouteByKey() {
	broker := open(
		&kgo.Record{Topic: "events", Key: []byte("eu"), Value: []byte("a")},
		&kgo.Record{Topic: "events", Key: []byte("mars"), Value: []byte("b")})
	defer broker.Close()
	err := processTopic(broker, strategies.RouteByKey(strategies.Branches[*kgo.Record]{
		"eu": strategies.Noop[*kgo.Record](),
		"us": strategies.Noop[*kgo.Record](),
	}))
	var invalid *arroyo.InvalidError // without a dead-letter policy it ends the run
	fmt.Println(errors.As(err, &invalid), invalid)
	// Output:
	// true invalid message: key "mars" has no branch
}

func ExampleQueue() {
	slow := strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		fmt.Println("archived", string(m.Payload.Value))
		return nil
	})
	quick := strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		fmt.Println("indexed", string(m.Payload.Value))
		return nil
	})
	wanted := func(m arroyo.Message[*kgo.Record]) string {
		return map[bool]string{true: "index", false: "archive"}[m.Payload.Offset%2 == 0]
	}
	err := process(
		strategies.Route(wanted, strategies.Branches[*kgo.Record]{
			"archive": strategies.Queue(1000, slow), // does not hold up the other
			"index":   quick,
		}),
		"a", "b")
	fmt.Println(err)
	// Unordered output:
	// indexed a
	// archived b
	// <nil>
}

func ExampleProduce() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1), memkafka.Topic("upper", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("events", "a", "b")
	client, err := kgo.NewClient(broker.ClientOptions()...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = processTopic(broker, strategies.RunTask(lookUp,
		strategies.Produce(client, func(_ context.Context, m arroyo.Message[string]) (*kgo.Record, error) {
			return strategies.Outgoing(m, "upper", []byte(m.Payload)), nil
		})))
	fmt.Println(err)
	for _, r := range broker.Records("upper") {
		fmt.Println(string(r.Value))
	}
	// Output:
	// <nil>
	// A
	// B
}

// open starts a broker with records in its topic "events".
func open(records ...*kgo.Record) *memkafka.Broker {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	broker.ProduceRecords(records...)
	return broker
}
