package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

type Order struct {
	ID    string
	Total int
}

// Check is a user function: what the shop cannot have meant is invalid.
func Check(_ context.Context, m arroyo.Message[Order]) (Order, error) {
	order := m.Payload
	switch {
	case order.ID == "test":
		return order, arroyo.Drop
	case order.Total < 0:
		return order, arroyo.Invalid(fmt.Errorf("order %s: a total of %d", order.ID, order.Total))
	}
	return order, nil
}

// consumeOrders runs a pipeline until it has dealt with so many orders, and
// prints what is in the dead-letter topic then.
func consumeOrders(pipeline arroyo.Strategy[*kgo.Record], orders ...string) {
	broker, err := memkafka.Open(memkafka.Topic("orders", 1), memkafka.Topic("orders.dead", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("orders", orders...)
	consumer, err := arroyo.NewConsumer("billing", []string{"orders"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		log.Fatal(err)
	}
	deadLetters := arroyo.DeadLetter(arroyo.DeadLetterPolicy{
		Topic:          "orders.dead",
		MaxConsecutive: 1000, // in a row
		MaxRatio:       0.1,  // of a partition's messages
	})
	processor, err := arroyo.NewProcessor(consumer, pipeline, deadLetters)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- processor.Run(ctx) }()
	broker.WaitCommitted("billing", "orders", int64(len(orders)))
	cancel()
	fmt.Println("run:", <-result)
	for _, letter := range broker.Records("orders.dead") {
		original, origin, err := arroyo.ReadDeadLetter(letter)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s offset %d, rejected in %s: %s\n", original.Topic, origin.Offset, origin.Step, origin.Reason)
	}
}

// What is invalid ends in the dead-letter topic; what is dropped does not.
func ExampleDeadLetter() {
	consumeOrders(
		strategies.RunTask(strategies.JSON,
			strategies.RunTask(Check,
				strategies.ForEach(func(_ context.Context, m arroyo.Message[Order]) error {
					fmt.Println("insert", m.Payload.ID)
					return nil
				}),
				strategies.Name("check")), strategies.Name("decode")),
		`{"ID":"a","Total":30}`, `{"ID":"b","Total":-1}`, `{"ID":"test"}`, `not JSON`)
	// Output:
	// insert a
	// run: <nil>
	// orders offset 1, rejected in check: order b: a total of -1
	// orders offset 3, rejected in decode: decode JSON: invalid character 'o' in literal null (expecting 'u')
}

// The rows of a batch are rejected one by one, for example when the database
// says which ones it did not take.
func ExampleMessage_Reject() {
	insert := func(_ context.Context, rows []arroyo.Message[Order]) error {
		for _, row := range rows {
			if row.Payload.Total > 1000 {
				row.Reject(errors.New("the column holds 1000"))
				continue
			}
			fmt.Println("insert", row.Payload.ID)
		}
		return nil // the others are done
	}
	consumeOrders(
		strategies.RunTask(strategies.JSON,
			strategies.ForEachBatch(100, 10*time.Millisecond, insert, strategies.Name("insert"))),
		`{"ID":"a","Total":30}`, `{"ID":"b","Total":2000}`, `{"ID":"c","Total":7}`)
	// Output:
	// insert a
	// insert c
	// run: <nil>
	// orders offset 1, rejected in insert: the column holds 1000
}

// A message that fails again and again can be given up: GiveUp makes the last
// error an invalid message.
func ExampleInvalid_giveUp() {
	attempts := 0
	call := func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		attempts++
		return fmt.Errorf("attempt %d: the server says 500", attempts)
	}
	pipeline :=
		strategies.ForEach(call, strategies.Name("call"),
			strategies.Retry(strategies.RetryPolicy{
				Attempts: 3,
				Min:      time.Millisecond,
				GiveUp:   arroyo.Invalid,
			}))
	consumeOrders(pipeline, "a")
	// Output:
	// run: <nil>
	// orders offset 0, rejected in call: attempt 3: the server says 500
}

// What becomes of a message that was rejected for a reason that is gone.
func ExampleReadDeadLetter() {
	letter := &kgo.Record{ // as the dead-letter topic has it
		Topic: "orders.dead",
		Value: []byte(`{"ID":"b","Total":2000}`),
		Headers: []kgo.RecordHeader{
			{Key: "trace", Value: []byte("7f")},
			{Key: "original_partition", Value: []byte("3")},
			{Key: "original_offset", Value: []byte("1234")},
			{Key: "original_topic", Value: []byte("orders")},
			{Key: "original_timestamp", Value: []byte("946684800000")},
			{Key: "rejected_by_group", Value: []byte("billing")},
			{Key: "rejected_at", Value: []byte("946684801000")},
			{Key: "rejected_in_step", Value: []byte("insert")},
			{Key: "rejected_because", Value: []byte("the column holds 1000")},
		},
	}
	original, origin, err := arroyo.ReadDeadLetter(letter)
	if err != nil {
		log.Fatal(err)
	}
	if origin.Reason == "the column holds 1000" { // it holds more now
		fmt.Printf("produce %s to %s, with %d header\n", original.Value, original.Topic, len(original.Headers))
	}
	// Output:
	// produce {"ID":"b","Total":2000} to orders, with 1 header
}

// docs/bad-messages.md shows code of this file, but for how far it is indented.
func TestBadMessagesDocShowsThisCode(t *testing.T) {
	code, err := os.ReadFile("example_deadletter_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("docs/bad-messages.md")
	if err != nil {
		t.Fatal(err)
	}
	unindented := func(text []byte) string {
		lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimLeft(line, "\t")
		}
		return strings.Join(lines, "\n")
	}
	blocks := strings.Split(string(doc), "```go\n")[1:]
	if len(blocks) < 4 {
		t.Errorf("%d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(unindented(code), unindented([]byte(block))) {
			t.Errorf("this is not in the examples as it is:\n%s", block)
		}
	}
}
