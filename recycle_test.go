package arroyo_test

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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// startRecycling starts a processor whose consumer recycles records.
func startRecycling(t *testing.T, broker *memkafka.Broker, pipeline arroyo.Strategy[*kgo.Record], popts ...arroyo.ProcessorOption) *member {
	t.Helper()
	consumer, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(broker.ClientOptions()...), arroyo.RecycleRecords())
	if err != nil {
		t.Fatal(err)
	}
	processor, err := arroyo.NewProcessor(consumer, pipeline, append([]arroyo.ProcessorOption{quiet}, popts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &member{processor, memkafka.Start(t, processor.Run)}
}

// numbered returns records for partition 0 that tell which they are.
func numbered(from, n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{
			Topic:   topic,
			Key:     []byte(keyOf(from + i)),
			Value:   []byte(valueOf(from + i)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, from+i)}},
		}
	}
	return records
}

func keyOf(n int) string   { return fmt.Sprintf("key-%d", n) }
func valueOf(n int) string { return fmt.Sprintf("%d-%s", n, strings.Repeat("x", 20+n%50)) }

// expectIntact checks that a record, which is not settled, is what was produced.
func expectIntact(t *testing.T, r *kgo.Record) {
	t.Helper()
	n := int(r.Offset)
	if string(r.Key) != keyOf(n) || string(r.Value) != valueOf(n) || r.Topic != topic ||
		len(r.Headers) != 1 || string(r.Headers[0].Value) != fmt.Sprint(n) {
		t.Errorf("offset %d: key %q, value %q, headers %q", n, r.Key, r.Value, r.Headers)
	}
}

// What is settled is used again for records that come later, and no record is
// touched before.
func TestRecycleRecords(t *testing.T) {
	for _, compression := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()},
		{"lz4", kgo.Lz4Compression()},
		{"snappy", kgo.SnappyCompression()},
	} {
		t.Run(compression.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const batches, size = 30, 200
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				producer, err := kgo.NewClient(append(broker.ClientOptions(),
					kgo.ProducerBatchCompression(compression.codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
				if err != nil {
					t.Fatal(err)
				}
				defer producer.Close()
				var used map[*kgo.Record]int
				var stuck *kgo.Record
				release := make(chan struct{})
				used = make(map[*kgo.Record]int)
				m := startRecycling(t, broker, strategies.RunTaskUnordered(2, func(ctx context.Context, m arroyo.Message[*kgo.Record]) (string, error) {
					expectIntact(t, m.Payload)
					if m.Payload.Offset == 100 { // its neighbours are done long before it
						stuck = m.Payload
						<-release
						expectIntact(t, m.Payload)
					}
					return string(m.Payload.Value), nil
				}, strategies.ForEach(func(_ context.Context, m arroyo.Message[string]) error {
					used[m.Record()]++
					if want := valueOf(int(m.Record().Offset)); m.Payload != want {
						t.Errorf("offset %d came out as %q", m.Record().Offset, m.Payload)
					}
					return nil
				})))
				for b := range batches {
					if err := producer.ProduceSync(t.Context(), numbered(b*size, size)...).FirstErr(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				close(release)
				broker.WaitCaughtUp(group, topic)
				m.shutDown(t)
				seen := 0
				for _, n := range used {
					seen += n
				}
				if seen != batches*size {
					t.Errorf("%d records were processed, want %d", seen, batches*size)
				}
				if n := used[stuck]; n != 1 {
					t.Errorf("the record that was held back was used %d times", n)
				}
				// A sync.Pool may forget, under the race detector on purpose.
				if len(used) > batches*size*2/3 {
					t.Errorf("%d different records for %d: they are not recycled", len(used), batches*size)
				}
			})
		})
	}
}

// Watermarks do not look at records that were recycled: neither in a log with
// gaps, nor behind a record that is stuck.
func TestRecycleRecordsWithGaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		for i := range 20 {
			for j := range 10 { // all but the last of each key go
				broker.ProduceRecords(&kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "%d", i*10+j%7), Value: []byte("v")})
			}
		}
		broker.Compact(topic)
		records := broker.Records(topic)
		last := records[len(records)-1].Offset
		if last == int64(len(records)-1) {
			t.Fatal("the log has no gaps")
		}
		stuckAt := records[len(records)/2].Offset
		release := make(chan struct{})
		m := startRecycling(t, broker, strategies.RunTaskUnordered(2, func(ctx context.Context, m arroyo.Message[*kgo.Record]) (int64, error) {
			if m.Payload.Offset == stuckAt {
				<-release
			}
			return m.Payload.Offset, nil
		}, strategies.Noop[int64]()))
		time.Sleep(5 * time.Second)
		if got := broker.Committed(group, topic)[0]; got != stuckAt {
			t.Errorf("committed %d while %d is stuck", got, stuckAt)
		}
		close(release)
		broker.WaitCaughtUp(group, topic)
		m.shutDown(t)
		if got := broker.Committed(group, topic)[0]; got <= last {
			t.Errorf("committed %d, the last record is %d", got, last)
		}
	})
}

// Dead letters are what was read, and an error that names a record which is
// settled already has its offset.
func TestRecycleRecordsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1), memkafka.Topic("dead", 1))
		broker.ProduceRecords(numbered(0, 100)...)
		failure := errors.New("broken")
		m := startRecycling(t, broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			switch n := m.Payload.Offset; {
			case n == 63: // the last of those that share the bits of their verdicts
				m.Ack()
				return failure
			case n%10 == 5:
				return arroyo.Invalid(errors.New("bad"))
			}
			time.Sleep(time.Second)
			return nil
		}), arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead"}))
		time.Sleep(2 * time.Minute)
		err := m.stop()
		var where *arroyo.StepError
		if !errors.Is(err, failure) || !errors.As(err, &where) || where.Offset != 63 {
			t.Errorf("Run returned %v, want the failure at offset 63", err)
		}
		letters := broker.Records("dead")
		if len(letters) != 6 {
			t.Errorf("%d dead letters, want 6", len(letters))
		}
		for i, letter := range letters {
			original, origin, err := arroyo.ReadDeadLetter(letter)
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(10*i + 5); origin.Offset != want || string(original.Value) != valueOf(int(want)) || string(original.Key) != keyOf(int(want)) {
				t.Errorf("letter %d is of offset %d: %q %q", i, origin.Offset, original.Key, original.Value)
			}
		}
	})
}

// What is returned at a drain, or of a lost partition, is left alone.
func TestRecycleRecordsThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		broker.ProduceRecords(numbered(0, 200)...)
		var mu sync.Mutex
		var held []arroyo.Message[*kgo.Record]
		m := startRecycling(t, broker, strategies.RunTaskUnordered(256, func(ctx context.Context, m arroyo.Message[*kgo.Record]) (int, error) {
			mu.Lock()
			held = append(held, m)
			mu.Unlock()
			<-arroyo.Draining(ctx)
			m.Return()
			return 0, nil
		}, strategies.Noop[int]()))
		time.Sleep(5 * time.Second)
		m.shutDown(t)
		if len(held) == 0 {
			t.Fatal("no record was processed")
		}
		for _, m := range held {
			expectIntact(t, m.Payload)
		}
	})
}

// Who polls the events may recycle the records.
func TestRecycleRecordsOfALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		consumer, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(broker.ClientOptions()...), arroyo.RecycleRecords())
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		const rounds, size = 30, 100
		different := make(map[*kgo.Record]bool)
		n, next := 0, int64(0)
		for round := range int64(rounds) {
			broker.ProduceTransaction(topic, slices.Repeat([]string{"v"}, size)...)
			for want := n + size; n < want; {
				ev, err := consumer.Poll(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if f, ok := ev.(*arroyo.Fetched); ok {
					next = f.Next
					for _, r := range f.Records {
						if string(r.Value) != "v" {
							t.Fatalf("a record's value is %q", r.Value)
						}
						different[r] = true
						r.Recycle()
						n++
					}
				}
			}
			if least := (round + 1) * size; next < least {
				t.Fatalf("the next offset is %d after %d records", next, least)
			}
		}
		if len(different) > n*2/3 {
			t.Errorf("%d different records for %d: they are not recycled", len(different), n)
		}
	})
}
