package arroyo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A pipeline from a topic to batches.
func Example() {
	broker, err := memkafka.Open(memkafka.Topic("orders", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("orders", `{"id":"a","total":30}`, `{"id":"b","total":0}`, `{"id":"c","total":12}`)

	type order struct {
		ID    string
		Total int
	}
	ctx, cancel := context.WithCancel(context.Background())
	consumer, err := arroyo.NewConsumer("billing", []string{"orders"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		log.Fatal(err)
	}
	pipeline := strategies.RunTask(strategies.JSON,
		strategies.Filter(func(m arroyo.Message[order]) bool { return m.Payload.Total > 0 },
			strategies.ForEachBatch(2, time.Second, func(_ context.Context, rows []arroyo.Message[order]) error {
				for _, row := range rows {
					fmt.Println("insert", row.Payload.ID, row.Payload.Total)
				}
				cancel() // enough for an example
				return nil
			})))
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("run:", processor.Run(ctx))
	fmt.Println("committed:", broker.Committed("billing", "orders"))
	// Output:
	// insert a 30
	// insert c 12
	// run: <nil>
	// committed: map[0:3]
}

// A loop of one's own over the event stream.
func ExampleConsumer_Poll() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("events", "one", "two")

	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	done := make(map[arroyo.Epoch]int64) // offsets to go on from
	for {
		ev, err := consumer.Poll(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		switch ev := ev.(type) {
		case *arroyo.Assigned:
			fmt.Println("assigned", ev.Epochs)
		case *arroyo.Fetched:
			for _, r := range ev.Records {
				fmt.Printf("%s at %d\n", r.Value, r.Offset)
				done[ev.Epoch] = r.Offset + 1
			}
			consumer.Drain(time.Minute) // enough for an example
		case *arroyo.Revoked:
			// Still ours: commit what is done. The next Poll lets it go.
			if err := consumer.Commit(context.Background(), done); err != nil {
				log.Fatal(err)
			}
			fmt.Println("revoked", ev.Epochs)
		case *arroyo.Lost:
			for _, e := range ev.Epochs {
				delete(done, e)
			}
		case *arroyo.Failed:
			if ev.Fatal {
				log.Fatal(ev.Err)
			}
		case *arroyo.Closed:
			fmt.Println("closed; committed", broker.Committed("g", "events"))
			return
		}
	}
	// Output:
	// assigned [events/0#1]
	// one at 0
	// two at 1
	// revoked [events/0#1]
	// closed; committed map[0:2]
}

// sampled is a strategy that hands on every nth message. Embedding Forward, it
// has to say only what it does differently.
type sampled struct {
	arroyo.Forward[*kgo.Record]
	n, i int
}

func (s *sampled) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	for i := range msgs {
		if s.i++; s.i%s.n != 0 {
			msgs[i].Ack() // done with it: settled, not handed on
		} else if err := s.Next.Submit(ctx, msgs[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func ExampleForwardTo() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		log.Fatal(err)
	}
	defer broker.Close()
	broker.Produce("events", "a", "b", "c", "d", "e", "f")

	ctx, cancel := context.WithCancel(context.Background())
	consumer, err := arroyo.NewConsumer("g", []string{"events"}, arroyo.ClientOptions(broker.ClientOptions()...))
	if err != nil {
		log.Fatal(err)
	}
	var pipeline arroyo.Strategy[*kgo.Record] = &sampled{
		Forward: arroyo.ForwardTo(strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			fmt.Println(string(m.Payload.Value))
			if string(m.Payload.Value) == "f" {
				cancel()
			}
			return nil
		})),
		n: 3,
	}
	processor, err := arroyo.NewProcessor(consumer, pipeline)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("run:", processor.Run(ctx))
	// Output:
	// c
	// f
	// run: <nil>
}

// A function is tested without any broker.
func ExampleMessage() {
	decode := func(_ context.Context, m arroyo.Message[*kgo.Record]) (uint16, error) {
		if len(m.Payload.Value) != 2 {
			return 0, arroyo.Invalid(fmt.Errorf("%d bytes", len(m.Payload.Value)))
		}
		return binary.BigEndian.Uint16(m.Payload.Value), nil
	}
	for _, value := range []string{"\x01\x02", "x"} {
		fmt.Println(decode(context.Background(), arroyo.Message[*kgo.Record]{Payload: &kgo.Record{Value: []byte(value)}}))
	}
	// Output:
	// 258 <nil>
	// 0 invalid message: 1 bytes
}

func ExampleNewProcessor() {
	consumer, err := arroyo.NewConsumer("g", []string{"events"})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	_, err = arroyo.NewProcessor(consumer, strategies.Noop[*kgo.Record](), arroyo.DrainTimeout(2*time.Minute))
	var bad *arroyo.OptionError
	fmt.Println(errors.As(err, &bad), err)
	// Output:
	// true arroyo: DrainTimeout: 2m0s is more than the 52s that a rebalance leaves: lower it, or raise kgo.RebalanceTimeout in ClientOptions
}
