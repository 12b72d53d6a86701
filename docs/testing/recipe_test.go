package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestDecode(t *testing.T) {
	for value, valid := range map[string]bool{
		`{"id":7,"paid":true}`: true,
		`{"paid":true}`:        false,
		`{"id":`:               false,
		``:                     false,
	} {
		record := &kgo.Record{Value: []byte(value)}
		_, err := decode(t.Context(), arroyo.Message[*kgo.Record]{Payload: record})
		if valid && err != nil {
			t.Errorf("%s: %v", value, err)
		}
		if _, invalid := errors.AsType[*arroyo.InvalidError](err); !valid && !invalid {
			t.Errorf("%s: %v, want an InvalidError", value, err)
		}
	}
}

func TestPaidOrdersAreInserted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 1))
		var got []int // without a lock
		stop := start(t, broker, func(_ context.Context, orders []Order) error {
			for _, o := range orders {
				got = append(got, o.ID)
			}
			return nil
		})
		broker.Produce("orders", `{"id":1,"paid":true}`, `{"id":2}`, `{"id":3,"paid":true}`)
		broker.WaitCaughtUp("billing", "orders")

		synctest.Wait()
		if want := []int{1, 3}; !slices.Equal(got, want) {
			t.Errorf("inserted %v, want %v", got, want)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestInvalidOrderEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 1))
		place(broker, 1, 2)
		broker.Produce("orders", `{"paid":true}`) // offset 2
		place(broker, 3, 3)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var tb table
		err := Run(ctx, tb.insert, broker.ClientOptions()...) // ends by itself

		at, ok := errors.AsType[*arroyo.StepError](err)
		if !ok || !errors.Is(err, arroyo.ErrNoDeadLetter) {
			t.Fatalf("Run: %v, want a StepError", err)
		}
		if at.Step != "RunTask(testing.decode)" || at.Epoch.Partition.String() != "orders/0" || at.Offset != 2 {
			t.Errorf("Run: %v, want the step, and orders/0 offset 2", err)
		}
		if next := broker.Committed("billing", "orders")[0]; next != 2 {
			t.Errorf("the next run begins at offset %d, want 2: with the invalid order", next)
		}
		tb.expectOnce(t, 2)
	})
}

func TestBatchWaitsForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 1))
		var began time.Time
		var got []string
		start(t, broker, func(_ context.Context, orders []Order) error {
			after := time.Since(began).Round(100 * time.Millisecond)
			got = append(got, fmt.Sprintf("%d after %v", len(orders), after))
			return nil
		})
		broker.WaitStable("billing", 1)
		time.Sleep(10 * time.Minute) // nothing to do

		began = time.Now()
		place(broker, 1, 250)
		broker.WaitCaughtUp("billing", "orders")
		synctest.Wait()
		if want := []string{"100 after 0s", "100 after 0s", "50 after 1s"}; !slices.Equal(got, want) {
			t.Errorf("batches of %q, want %q", got, want)
		}
	})
}

func TestRebalance(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"cooperative": nil,
		"eager":       {kgo.Balancers(kgo.RangeBalancer())},
		"KIP-848":     {kgo.ServerSideBalancer()},
	} {
		t.Run(name, func(t *testing.T) { // outside of the bubble
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("orders", 4))
				var tb table
				stop := start(t, broker, tb.insert, opts...)
				broker.WaitStable("billing", 1)
				place(broker, 1, 1000)

				rival := broker.Join("billing", "orders", opts...)
				broker.WaitStable("billing", 2) // two partitions each
				place(broker, 1001, 2000)
				time.Sleep(10 * time.Second)
				if n := len(rival.Consumed()); n < 500 {
					t.Errorf("the rival read %d orders, want half of the second thousand", n)
				}

				rival.Leave()
				broker.WaitStable("billing", 1)
				broker.WaitCaughtUp("billing", "orders")
				if err := stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				tb.expectOnce(t, 2000)
			})
		})
	}
}

func TestMemberDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		var tb table
		stop := start(t, broker, tb.insert)
		rival := broker.Join("billing", "orders")
		broker.WaitStable("billing", 2)
		place(broker, 1, 100)

		rival.Die()
		died := time.Now()
		broker.WaitStable("billing", 1)
		broker.WaitCaughtUp("billing", "orders")
		if took := time.Since(died); took < 40*time.Second || took > time.Minute {
			t.Errorf("the dead member's orders were done after %v, want about 45s", took)
		}
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		tb.expectOnce(t, 100)
	})
}

func TestRebalanceInTheMiddleOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		tb := table{takes: 15 * time.Second}
		stop := start(t, broker, tb.insert)
		broker.WaitStable("billing", 1)
		began := time.Now()
		place(broker, 1, 100) // a batch, of all partitions
		time.Sleep(time.Second)
		place(broker, 101, 200)

		rival := broker.Join("billing", "orders")
		broker.WaitStable("billing", 2)
		if took := time.Since(began); took < tb.takes {
			t.Errorf("the rival had partitions after %v, before the batch was done", took)
		}
		broker.WaitCommitted("billing", "orders", 150) // the batch, and what is left to us of the next
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}

		for _, r := range rival.Consumed() {
			var o Order
			if err := json.Unmarshal(r.Value, &o); err != nil {
				t.Fatal(err)
			}
			tb.rows[o.ID]++
		}
		tb.expectOnce(t, 200) // by one of the two
	})
}

func TestBrokerIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		var tb table
		stop := start(t, broker, tb.insert)
		place(broker, 1, 100)
		broker.WaitCaughtUp("billing", "orders")

		broker.Down()
		place(broker, 101, 200) // by others: broker's methods work
		time.Sleep(30 * time.Second)
		broker.Up()

		broker.WaitCaughtUp("billing", "orders")
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		tb.expectOnce(t, 200)
	})
}

func TestMemberIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		host := broker.Host()
		var tb table
		stop := memkafka.Start(t, func(ctx context.Context) error {
			return Run(ctx, tb.insert, host.ClientOptions()...)
		})
		place(broker, 1, 100)
		broker.WaitCaughtUp("billing", "orders")

		host.BlackHole() // the member is not told; of Cut it would be
		place(broker, 101, 200)
		rival := broker.Join("billing", "orders")
		time.Sleep(2 * time.Minute)
		if n := len(rival.Assigned()); n != 4 {
			t.Errorf("the rival has %d partitions, want 4: the member's session is over", n)
		}
		host.Heal()
		broker.WaitStable("billing", 2) // it came back
		rival.Leave()

		broker.WaitCaughtUp("billing", "orders")
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		tb.expectOnce(t, 200)
	})
}

func TestCommitGoesWrong(t *testing.T) {
	for name, wrong := range map[string]func(*memkafka.Broker) *memkafka.Fault{
		"fails": func(broker *memkafka.Broker) *memkafka.Fault {
			return broker.Fail(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress, memkafka.Times(3))
		},
		"is slow": func(broker *memkafka.Broker) *memkafka.Fault {
			return broker.Delay(kmsg.OffsetCommit, 5*time.Second, memkafka.Times(3))
		},
		"is never answered": func(broker *memkafka.Broker) *memkafka.Fault {
			return broker.Swallow(kmsg.OffsetCommit, memkafka.Times(1))
		},
		"is done, but the answer is lost": func(broker *memkafka.Broker) *memkafka.Fault {
			return broker.Disconnect(kmsg.OffsetCommit, memkafka.Applied(), memkafka.Times(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("orders", 4))
				var tb table
				stop := start(t, broker, tb.insert)
				broker.WaitStable("billing", 1)
				fault := wrong(broker)
				place(broker, 1, 100)
				fault.Wait(1)
				place(broker, 101, 200)
				broker.WaitCaughtUp("billing", "orders")
				if err := stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				tb.expectOnce(t, 200)
			})
		})
	}
}

func TestShutdownFinishesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		tb := table{takes: 5 * time.Second}
		stop := start(t, broker, tb.insert)
		broker.WaitStable("billing", 1)
		place(broker, 1, 1000)
		time.Sleep(7 * time.Second) // in the middle of the second batch

		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		var committed int64
		for _, next := range broker.Committed("billing", "orders") {
			committed += next
		}
		if n := int64(len(tb.rows)); n <= 100 || n == 1000 || committed != n {
			t.Errorf("%d orders were inserted and %d committed, want as many, and not all", n, committed)
		}
		if n := broker.Members("billing"); n != 0 {
			t.Errorf("the group has %d members, want 0", n)
		}
	})
}

func TestInsertHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 1))
		release := make(chan struct{})
		defer close(release) // or its goroutine would outlive the bubble
		stop := start(t, broker, func(context.Context, []Order) error {
			<-release
			return nil
		})
		place(broker, 1, 100)
		time.Sleep(time.Minute)

		began := time.Now()
		err := stop()
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("stop took %v, want no more than DrainTimeout and a second", took)
		}
		left, ok := errors.AsType[*arroyo.AbandonedError](err)
		if !ok || left.Records != 100 || left.Step != "insert" {
			t.Errorf("Run: %v, want an AbandonedError of 100 records in step insert", err)
		}
		if next := broker.Committed("billing", "orders")[0]; next != 0 {
			t.Errorf("the next run begins at offset %d, want 0", next)
		}
	})
}

// A consumer that knows nothing of Arroyo.
func TestBareClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("orders", 4))
		client, err := kgo.NewClient(append(broker.ClientOptions(),
			kgo.ConsumerGroup("audit"),
			kgo.ConsumeTopics("orders"),
			kgo.DisableAutoCommit())...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close() // inside of the bubble

		place(broker, 1, 100)
		read := 0
		for read < 100 {
			fetches := client.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			read += fetches.NumRecords()
			if err := client.CommitUncommittedOffsets(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		broker.WaitCaughtUp("audit", "orders")
	})
}

// In real time: a bubble has no sockets.
func TestOverTCP(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("orders", 4))
	var tb table
	stop := memkafka.Start(t, func(ctx context.Context) error {
		return Run(ctx, tb.insert, kgo.SeedBrokers(broker.Addr())) // or another program
	})
	place(broker, 1, 100)
	broker.WaitCaughtUp("billing", "orders")
	if err := stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	tb.expectOnce(t, 100)
}
