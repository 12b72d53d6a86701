package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// printed ends a pipeline: it prints what comes.
func printed[T any]() arroyo.Strategy[T] {
	return strategies.ForEach(func(_ context.Context, m arroyo.Message[T]) error {
		fmt.Println(m.Payload)
		return nil
	})
}

func atoi(_ context.Context, m arroyo.Message[*kgo.Record]) (int, error) {
	n, err := strconv.Atoi(string(m.Payload.Value))
	if err != nil {
		return 0, arroyo.Invalid(err)
	}
	return n, nil
}

func ExampleFilter() {
	even := func(m arroyo.Message[int]) bool { return m.Payload%2 == 0 }
	err := process(
		strategies.RunTask(atoi,
			strategies.Filter(even,
				printed[int]())),
		"1", "2", "3", "4")
	fmt.Println(err)
	// Output:
	// 2
	// 4
	// <nil>
}

func ExampleNoop() {
	warm := func(_ context.Context, m arroyo.Message[*kgo.Record]) (int, error) {
		fmt.Printf("looked at %s\n", m.Payload.Value)
		return 0, nil
	}
	err := process(strategies.RunTask(warm, strategies.Noop[int]()), "a", "b")
	fmt.Println(err)
	// Output:
	// looked at a
	// looked at b
	// <nil>
}

// Messages that are worked on together and then go on one by one.
func ExampleBatch() {
	price := func(_ context.Context, b arroyo.BatchOf[string]) ([]arroyo.Message[string], error) {
		priced := b.Payload[:0:0] // one query for all of them
		for _, m := range b.Payload {
			if m.Payload == "unicorn" {
				m.Reject(errors.New("not for sale"))
				continue
			}
			priced = append(priced, arroyo.With(m, fmt.Sprintf("%s: %d", m.Payload, len(m.Payload))))
		}
		return priced, nil
	}
	text := func(_ context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
		return string(m.Payload.Value), nil
	}
	err := process(
		strategies.RunTask(text,
			strategies.Batch(3, time.Millisecond,
				strategies.RunTask(price,
					strategies.Unbatch(
						printed[string]())))),
		"apple", "fig", "banana")
	fmt.Println(err)
	// Output:
	// apple: 5
	// fig: 3
	// banana: 6
	// <nil>
}

// Members keep their identity in a batch.
func ExampleUnbatch() {
	reverse := func(_ context.Context, b arroyo.BatchOf[int]) ([]arroyo.Message[int], error) {
		for i, j := 0, len(b.Payload)-1; i < j; i, j = i+1, j-1 {
			b.Payload[i], b.Payload[j] = b.Payload[j], b.Payload[i]
		}
		return b.Payload, nil
	}
	err := process(
		strategies.RunTask(atoi,
			strategies.Batch(3, time.Hour,
				strategies.RunTask(reverse,
					strategies.Unbatch(
						strategies.ForEach(func(_ context.Context, m arroyo.Message[int]) error {
							fmt.Println(m.Payload, "of offset", m.Record().Offset)
							return nil
						}))))),
		"10", "11", "12")
	fmt.Println(err)
	// Output:
	// 12 of offset 2
	// 11 of offset 1
	// 10 of offset 0
	// <nil>
}

// At most a thousand rows and a mebibyte an insert.
func ExampleMaxSize() {
	bytes := func(m arroyo.Message[*kgo.Record]) int { return len(m.Payload.Value) }
	insert := func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		fmt.Println("insert", len(rows))
		return nil
	}
	err := process(
		strategies.ForEachBatch(1000, time.Millisecond, insert, strategies.MaxSize(1<<20, bytes)),
		strings.Repeat("a", 900_000), strings.Repeat("b", 200_000))
	fmt.Println(err)
	// Output:
	// insert 1
	// insert 1
	// <nil>
}

func ExampleUnfold() {
	words := func(_ context.Context, m arroyo.Message[*kgo.Record]) ([]string, error) {
		return strings.Fields(string(m.Payload.Value)), nil
	}
	err := process(strategies.Unfold(words, printed[string]()), "to be", "", "or not")
	fmt.Println(err)
	// Output:
	// to
	// be
	// or
	// not
	// <nil>
}

func ExampleReduce() {
	perWord := func(counts map[string]int, m arroyo.Message[*kgo.Record]) (map[string]int, error) {
		counts[string(m.Payload.Value)]++
		return counts, nil
	}
	empty := func() map[string]int { return make(map[string]int) }
	err := process(
		strategies.Reduce(4, time.Hour, empty, perWord,
			printed[map[string]int]()),
		"a", "b", "a", "a")
	fmt.Println(err)
	// Output:
	// map[a:3 b:1]
	// <nil>
}

// transaction is an accumulator: it is ready when its last part has come.
type transaction struct {
	parts []string
	done  bool
}

func (t *transaction) Add(_ context.Context, m arroyo.Message[*kgo.Record]) error {
	part := string(m.Payload.Value)
	t.parts = append(t.parts, part)
	t.done = part == "commit"
	return nil
}

func (t *transaction) Ready() bool { return t.done }

// Result has nothing to hand on if there is only the end.
func (t *transaction) Result() (string, bool) {
	return strings.Join(t.parts, " "), len(t.parts) > 1
}

func ExampleAccumulate() {
	begin := func() *transaction { return new(transaction) }
	err := process(
		strategies.Accumulate(time.Minute, begin,
			printed[string]()),
		"debit", "credit", "commit", "commit", "debit", "commit")
	fmt.Println(err)
	// Output:
	// debit credit commit
	// debit commit
	// <nil>
}

// Every minute of a partition, from the record that begins it to the one that
// the next begins with.
func ExampleInterval() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, seconds := range []time.Duration{0, 20, 65, 70, 130} {
		broker.ProduceRecords(&kgo.Record{Topic: "events", Timestamp: noon.Add(seconds * time.Second)})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		fmt.Println(err)
		return
	}
	processor, err := arroyo.NewProcessor(consumer, strategies.Interval(time.Minute,
		strategies.ForEach(func(_ context.Context, m arroyo.Message[strategies.Span]) error {
			s := m.Payload
			fmt.Printf("offsets %d to %d, %s to %s\n", s.First, s.Next, s.Start.UTC().Format("15:04:05"), s.End.UTC().Format("15:04:05"))
			if s.Next == 4 {
				cancel() // enough for an example
			}
			return nil
		})))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(processor.Run(ctx))
	fmt.Println("the next owner begins at", broker.Committed("g", "events")[0])
	// Output:
	// offsets 0 to 2, 12:00:00 to 12:01:05
	// offsets 2 to 4, 12:01:05 to 12:02:10
	// <nil>
	// the next owner begins at 4
}

func ExampleHealthcheck() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "health") // a liveness probe looks at its age
	err = process(
		strategies.Healthcheck(file, time.Second,
			strategies.Noop[*kgo.Record]()),
		"a")
	fmt.Println(err)
	_, err = os.Stat(file)
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}

func ExampleJSON() {
	type order struct{ ID string }
	err := process(
		strategies.RunTask(strategies.JSON,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[order]) error {
				fmt.Println("order", m.Payload.ID)
				return nil
			})),
		`{"id":"a"}`, `{"id":"b"}`)
	fmt.Println(err)
	// Output:
	// order a
	// order b
	// <nil>
}

func ExamplePlain() {
	value := func(_ context.Context, r *kgo.Record) (string, error) { return string(r.Value), nil }
	length := func(_ context.Context, s string) (int, error) { return len(s), nil }
	err := process(
		strategies.RunTask(strategies.Plain(value),
			strategies.RunTask(strategies.Plain(length),
				printed[int](),
				strategies.Name("length")), strategies.Name("value")),
		"apple", "fig")
	fmt.Println(err)
	// Output:
	// 5
	// 3
	// <nil>
}

func ExampleRecordKey() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	broker.ProduceRecords(&kgo.Record{Topic: "events", Key: []byte("user-7"), Value: []byte("login")})
	err = processTopic(broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		fmt.Println(strategies.RecordKey(m), string(m.Payload.Value))
		return nil
	}))
	fmt.Println(err)
	// Output:
	// user-7 login
	// <nil>
}

func ExampleOutgoing() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer broker.Close()
	broker.ProduceRecords(&kgo.Record{Topic: "events", Key: []byte("user-7"), Value: []byte("login")})
	err = processTopic(broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		out := strategies.Outgoing(m, "events.upper", []byte(strings.ToUpper(string(m.Payload.Value))))
		fmt.Printf("%s: %s=%s\n", out.Topic, out.Key, out.Value)
		return nil
	}))
	fmt.Println(err)
	// Output:
	// events.upper: user-7=LOGIN
	// <nil>
}
