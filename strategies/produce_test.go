package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// acks is a producer whose records the test acks itself.
type acks struct {
	mu   sync.Mutex
	sent []*sentRecord
}

type sentRecord struct {
	*kgo.Record
	ctx     context.Context
	promise func(*kgo.Record, error)
}

func (a *acks) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = append(a.sent, &sentRecord{r, ctx, promise})
}

func (a *acks) all() []*sentRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sent)
}

func (a *acks) values() (values []string) {
	for _, s := range a.all() {
		values = append(values, string(s.Value))
	}
	return values
}

func (s *sentRecord) ack(err error) { s.promise(s.Record, err) }

// copied makes the output of a record.
func copied(_ context.Context, m records) (*kgo.Record, error) {
	return strategies.Outgoing(m, "out", m.Payload.Value), nil
}

func newProducePipe(t *testing.T, producer strategies.Producer, opts ...strategies.Option) *pipe {
	return newPipe(t, func(arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
		return strategies.Produce(producer, copied, append([]strategies.Option{strategies.Name("produce")}, opts...)...)
	})
}

// newClient makes a client in a bubble.
func newClient(t *testing.T, broker *memkafka.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(broker.ClientOptions(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// The broker's ack settles the input; key, headers, timestamp and null values
// come through, to topics chosen by message.
func TestProduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("even", 1), memkafka.Topic("odd", 1))
		client := newClient(t, broker)
		defer client.Close()
		b := benchOn(t, broker, strategies.Produce(client, func(_ context.Context, m records) (*kgo.Record, error) {
			if len(m.Payload.Value) == 4 {
				return nil, arroyo.Drop
			}
			topic := "even"
			if m.Payload.Offset%2 == 1 {
				topic = "odd"
			}
			return strategies.Outgoing(m, topic, m.Payload.Value), nil
		}))
		at := time.Now().Truncate(time.Second).Add(-time.Hour)
		headers := []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}
		broker.ProduceRecords(
			&kgo.Record{Topic: "events", Key: []byte("k"), Value: []byte("a"), Headers: headers, Timestamp: at},
			&kgo.Record{Topic: "events", Key: []byte("k"), Timestamp: at},
			&kgo.Record{Topic: "events", Value: []byte("drop"), Timestamp: at})
		b.settle(3)
		b.stopsWithin(time.Second)
		even, odd := broker.Records("even"), broker.Records("odd")
		if len(even) != 1 || string(even[0].Key) != "k" || string(even[0].Value) != "a" || !even[0].Timestamp.Equal(at) || !slices.EqualFunc(even[0].Headers, headers, func(a, b kgo.RecordHeader) bool {
			return a.Key == b.Key && string(a.Value) == string(b.Value)
		}) {
			t.Errorf("the even topic has %+v", even)
		}
		if len(odd) != 1 || odd[0].Value != nil {
			t.Errorf("the odd topic has %+v, want a tombstone", odd)
		}
	})
}

// Outputs without a topic go to the client's.
func TestProduceToTheDefaultTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.DefaultProduceTopic("out"))
		defer client.Close()
		p := newPipe(t, func(arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record] {
			return strategies.Produce(client, func(_ context.Context, m records) (*kgo.Record, error) {
				return strategies.Outgoing(m, "", m.Payload.Value), nil
			})
		})
		p.feed(p.assign(0), "a", "b")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		if n := len(broker.Records("out")); n != 2 {
			t.Errorf("%d records are in the default topic, want 2", n)
		}
	})
}

// No offset is committed before the output is acked, and a drain waits for it.
func TestProduceWaitsForAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		p := newProducePipe(t, &a)
		e := p.assign(0)
		p.feed(e, "a", "b", "c")
		synctest.Wait()
		if diff := cmp.Diff([]string{"a", "b", "c"}, a.values()); diff != "" {
			t.Fatalf("produced (-want +got):\n%s", diff)
		}
		a.all()[1].ack(nil)
		if w, _ := p.Watermark(e); w != 0 || p.Unsettled(e) != 2 {
			t.Errorf("watermark %d, %d unsettled, want 0 and 2", w, p.Unsettled(e))
		}
		p.Stop()
		time.Sleep(time.Minute)
		select {
		case <-p.Done():
			t.Error("Close returned with records in flight")
		default:
		}
		a.all()[0].ack(nil)
		a.all()[2].ack(nil)
		<-p.Done()
		if err := p.Err(); err != nil {
			t.Errorf("the lane ended with %v", err)
		}
		if w, _ := p.Watermark(e); w != 3 {
			t.Errorf("watermark %d, want 3", w)
		}
	})
}

// Under an ended context Close waits for no ack, and a late one is harmless.
func TestProduceIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		p := newProducePipe(t, &a)
		p.feed(p.assign(0), "a", "b")
		synctest.Wait()
		p.Abandon()
		<-p.Done()
		a.all()[0].ack(nil)
		a.all()[1].ack(errDown)
		synctest.Wait()
		if err := p.Err(); err != nil {
			t.Errorf("the lane ended with %v", err)
		}
	})
}

// A Submit that waits for room returns when its work is abandoned.
func TestProduceIsAbandonedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("out", 1))
		broker.Swallow(kmsg.Produce)
		client := newClient(t, broker, kgo.MaxBufferedRecords(1))
		defer client.Close()
		p := newProducePipe(t, client)
		p.feed(p.assign(0), "a", "b")
		synctest.Wait()
		began := time.Now()
		p.Abandon()
		<-p.Done()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v to end", took)
		}
	})
}

// The context of a record that is buffered does not end with its partition or
// its lane: kgo would fail what others have buffered.
func TestProduceContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		p := newProducePipe(t, &a)
		lost, kept := p.assign(0), p.assign(1)
		p.feed(lost, "lost")
		p.feed(kept, "kept")
		synctest.Wait()
		p.Fence(lost)
		synctest.Wait()
		for _, s := range a.all() {
			if s.ctx.Err() != nil || s.ctx.Done() != nil {
				t.Errorf("the context of %s can end: %v", s.Value, s.ctx.Err())
			}
		}
		a.all()[0].ack(context.Canceled) // is nobody's any more
		a.all()[1].ack(nil)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// A producer that blocks is let go of when its message's epoch ends.
func TestProduceBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducePipe(t, produceFunc(func(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
			if string(r.Value) == "blocks" {
				<-ctx.Done()
				promise(r, ctx.Err())
				return
			}
			promise(r, nil)
		}))
		lost, kept := p.assign(0), p.assign(1)
		p.feed(lost, "blocks")
		synctest.Wait()
		p.feed(kept, "a")
		p.Fence(lost)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

type produceFunc func(context.Context, *kgo.Record, func(*kgo.Record, error))

func (f produceFunc) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	f(ctx, r, promise)
}

// I9: no more than the client's buffer is in flight; what is not produced when
// a drain begins is returned, and other partitions go on.
func TestI9ProduceIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.MaxBufferedRecords(5))
		defer client.Close()
		p := newProducePipe(t, client)
		fault := broker.Swallow(kmsg.Produce)
		a, b := p.assign(0), p.assign(1)
		p.feed(a, numbered(3)...)
		synctest.Wait()
		p.feed(b, numbered(20)...)
		synctest.Wait()
		if n := client.BufferedProduceRecords(); n != 5 {
			t.Errorf("%d records are in flight, want 5", n)
		}
		p.Drain(b)
		synctest.Wait()
		if n := p.Unsettled(b); n != 2 {
			t.Errorf("%d of the drained partition are unsettled, want the 2 that are in flight", n)
		}
		fault.Heal()
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		if w, _ := p.Watermark(b); w != 2 {
			t.Errorf("the next owner begins at %d, want 2", w)
		}
		p.finish()
		if n := len(broker.Records("out")); n != 5 {
			t.Errorf("%d records were written, want 5", n)
		}
	})
}

// With the window full Submit blocks, and goes on in order as acks come.
func TestProduceGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.MaxBufferedRecords(3))
		defer client.Close()
		p := newProducePipe(t, client)
		p.feed(p.assign(0), numbered(500)...)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		var got []string
		for _, r := range broker.Records("out") {
			got = append(got, string(r.Value))
		}
		if diff := cmp.Diff(numbered(500), got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// What the brokers refuse for what it is, is invalid, and what was in the same
// batch is not.
func TestProduceRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"too large":         fmt.Errorf("%w (bytes)", kerr.MessageTooLarge),
		"list too large":    kerr.RecordListTooLarge,
		"invalid":           kerr.InvalidRecord,
		"invalid timestamp": kerr.InvalidTimestamp,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a acks
				p := newProducePipe(t, &a)
				e := p.assign(0)
				p.feed(e, "good", "bad", "other")
				synctest.Wait()
				a.all()[0].ack(refusal) // all of a batch
				a.all()[1].ack(refusal)
				synctest.Wait()
				p.feed(e, "later") // waits until they were alone
				synctest.Wait()
				if n := len(a.all()); n != 3 {
					t.Fatalf("one was tried again while another was in flight, or not before all others: %d were produced", n)
				}
				a.all()[2].ack(nil)
				synctest.Wait()
				if diff := cmp.Diff([]string{"good", "bad", "other", "good"}, a.values()); diff != "" {
					t.Fatalf("produced (-want +got):\n%s", diff)
				}
				a.all()[3].ack(nil)
				synctest.Wait()
				if n := len(a.all()); n != 5 {
					t.Fatalf("%d were produced, want 5: the second is tried alone, too", n)
				}
				a.all()[4].ack(refusal)
				synctest.Wait()
				a.all()[5].ack(nil)
				if err := p.Settle(); err != nil {
					t.Fatal(err)
				}
				p.finish()
				if diff := cmp.Diff([]string{"good acked", "bad rejected", "other acked", "later acked"}, p.verdicts(e)); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
				for _, v := range p.Verdicts() {
					if v.Kind != arroyo.Rejected {
						continue
					}
					at, located := errors.AsType[*arroyo.StepError](v.Err)
					why, ok := errors.AsType[*strategies.ProduceError](v.Err)
					if !located || at.Offset != 1 || at.Step != "produce" || !ok || why.Topic != "out" || why.Retriable || !errors.Is(v.Err, refusal) {
						t.Errorf("rejected with %v", v.Err)
					}
				}
			})
		})
	}
}

// A record that is too large for the real client is invalid, too.
func TestProduceTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("out", 1))
		client := newClient(t, broker, kgo.ProducerBatchMaxBytes(1000))
		defer client.Close()
		p := newProducePipe(t, client)
		e := p.assign(0)
		large := strings.Repeat("x", 2000)
		p.feed(e, "a", large, "b")
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
		if diff := cmp.Diff([]string{"a acked", large + " rejected", "b acked"}, p.verdicts(e)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
	})
}

// Any other error ends the run: it names the step, the place, the topic and the
// cause, and whether that may pass.
func TestProduceFails(t *testing.T) {
	for name, tt := range map[string]struct {
		err       error
		retriable bool
	}{
		"fatal":    {kerr.TopicAuthorizationFailed, false},
		"topic":    {kerr.InvalidTopicException, false},
		"passing":  {kerr.NotEnoughReplicas, true},
		"timeout":  {fmt.Errorf("%w: last", kgo.ErrRecordTimeout), true},
		"retries":  {kgo.ErrRecordRetries, true},
		"a closed": {kgo.ErrClientClosed, false},
		"a proxy":  {&kgo.ErrFirstReadEOF{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a acks
				p := newProducePipe(t, &a)
				e := p.assign(0)
				p.feed(e, "a", "b")
				synctest.Wait()
				a.all()[0].ack(nil)
				a.all()[1].ack(tt.err)
				<-p.Done()
				at, located := errors.AsType[*arroyo.StepError](p.Err())
				why, ok := errors.AsType[*strategies.ProduceError](p.Err())
				if !located || at.Step != "produce" || at.Epoch != e || at.Offset != 1 || !ok || why.Topic != "out" || why.Retriable != tt.retriable || !errors.Is(why, tt.err) {
					t.Errorf("the run ended with %v, want %v at offset 1, retriable: %v", p.Err(), tt.err, tt.retriable)
				}
				if w, _ := p.Watermark(e); w != 1 {
					t.Errorf("the watermark is %d, want 1", w)
				}
			})
		})
	}
}

// In a drain an error that may pass is the next owner's to try; one that does
// not pass ends the run even so.
func TestProduceFailsInADrain(t *testing.T) {
	for name, err := range map[string]error{
		"passes":         kgo.ErrRecordTimeout,
		"passes, closed": &kgo.ErrFirstReadEOF{},
		"does not":       kerr.TopicAuthorizationFailed,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var a acks
				p := newProducePipe(t, &a)
				e := p.assign(0)
				p.feed(e, "a")
				synctest.Wait()
				p.Stop()
				synctest.Wait()
				a.all()[0].ack(err)
				<-p.Done()
				if passes := name != "does not"; passes != (p.Err() == nil) {
					t.Errorf("the run ended with %v", p.Err())
				}
			})
		})
	}
}

// A connection that is closed at once may be a proxy's doing: the error says how
// to go on then.
func TestProduceErrorOfAClosedConnection(t *testing.T) {
	err := &strategies.ProduceError{Topic: "out", Retriable: true, Err: &kgo.ErrFirstReadEOF{}}
	if !strings.Contains(err.Error(), "kgo.AlwaysRetryEOF") {
		t.Errorf("the error is %q, want one that names kgo.AlwaysRetryEOF", err)
	}
}

// A producer that panics ends the run, at the record that it was given.
func TestProducePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a acks
		rig := arroyo.NewRig(strategies.Produce(produceFunc(func(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
			if string(r.Value) == "b" {
				panic("oops")
			}
			a.Produce(ctx, r, promise)
		}), copied, strategies.Name("produce")))
		rig.Feed(rig.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Value: []byte("a")}, &kgo.Record{Offset: 1, Value: []byte("b")})
		<-rig.Done()
		at, ok := errors.AsType[*arroyo.StepError](rig.Err())
		if _, panicked := errors.AsType[*arroyo.PanicError](rig.Err()); !ok || !panicked || at.Step != "produce" || at.Offset != 1 {
			t.Errorf("the run ended with %v, want a panic in produce at offset 1", rig.Err())
		}
	})
}

// What outgoing does wrong ends the run and is located; a panic has its stack.
func TestProduceWrongOutput(t *testing.T) {
	for name, tt := range map[string]struct {
		f    func(records) (*kgo.Record, error)
		want string
	}{
		"the input": {func(m records) (*kgo.Record, error) { return m.Payload, nil }, "input's own record"},
		"nothing":   {func(records) (*kgo.Record, error) { return nil, nil }, "no record and no error"},
		"an error":  {func(records) (*kgo.Record, error) { return nil, errDown }, errDown.Error()},
		"a panic":   {func(records) (*kgo.Record, error) { panic("oops") }, "produce_test.go"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := arroyo.NewRig(strategies.Produce(&acks{}, func(ctx context.Context, m records) (*kgo.Record, error) {
					if m.Payload.Offset == 3 {
						return copied(ctx, m)
					}
					return tt.f(m)
				}, strategies.Name("produce")))
				r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Topic: "events", Offset: 3}, &kgo.Record{Topic: "events", Offset: 4})
				<-r.Done()
				at, ok := errors.AsType[*arroyo.StepError](r.Err())
				if !ok || at.Step != "produce" || at.Offset != 4 || !strings.Contains(at.Error(), tt.want) {
					t.Errorf("the run ended with %v, want %q in produce at offset 4", r.Err(), tt.want)
				}
			})
		})
	}
}

func TestConformanceOfProduce(t *testing.T) {
	strategytest.Conformance(t, func(arroyo.Strategy[int]) arroyo.Strategy[int] {
		written := produceFunc(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
			time.AfterFunc(5*time.Millisecond, func() { promise(r, nil) })
		})
		return strategies.Produce(written, func(ctx context.Context, m arroyo.Message[int]) (*kgo.Record, error) {
			return strategies.Outgoing(m, "out", nil), strategytest.Work(ctx, m)
		})
	}, number, strategytest.Ends())
}

func TestProduceConstructorPanics(t *testing.T) {
	byHand, err := kgo.NewClient(kgo.ManualFlushing())
	if err != nil {
		t.Fatal(err)
	}
	defer byHand.Close()
	for want, build := range map[string]func(){
		"Produce: the producer is nil":               func() { strategies.Produce(nil, copied) },
		"Produce: the client is nil":                 func() { strategies.Produce((*kgo.Client)(nil), copied) },
		"Produce: the function is nil":               func() { strategies.Produce[int](&acks{}, nil) },
		"Produce: the client has kgo.ManualFlushing": func() { strategies.Produce(byHand, copied) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
					t.Errorf("panicked with %q, want %q in it", v, want)
				}
			}()
			build()
		})
	}
}
