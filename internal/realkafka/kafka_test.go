package realkafka_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

// timeout bounds what a test waits for from the broker.
const timeout = 30 * time.Second

func newClient(t *testing.T, k *realkafka.Kafka, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(k.ClientOptions(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// produce writes n records spread over the partitions and returns their values.
func produce(t *testing.T, k *realkafka.Kafka, topic string, partitions, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	client := newClient(t, k, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	values := make([]string, 0, n)
	records := make([]*kgo.Record, 0, n)
	for i := range n {
		value := fmt.Sprintf("%04d", i)
		values = append(values, value)
		records = append(records, &kgo.Record{Partition: int32(i % partitions), Value: []byte(value)})
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return values
}

// consume polls until there are n records and returns their values, sorted.
func consume(t *testing.T, client *kgo.Client, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("have %d of %d records: %v", len(values), n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	slices.Sort(values)
	return values
}

func TestGroupConsumesWhatWasProduced(t *testing.T) {
	const partitions = 3
	k := realkafka.Start(t)
	topic, group := k.Topic(t, partitions), k.Group(t)
	want := produce(t, k, topic, partitions, 300)

	client := newClient(t, k,
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.SessionTimeout(1*time.Second), // less than Kafka's default allows
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.DisableAutoCommit(),
	)
	if got := consume(t, client, len(want)); !slices.Equal(got, want) {
		t.Errorf("consumed %v, want %v", got, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	committed, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	for partition := range int32(partitions) {
		o, ok := committed.Lookup(topic, partition)
		if !ok || o.At != 100 {
			t.Errorf("partition %d: committed %d (%t), want 100", partition, o.At, ok)
		}
	}
}

func TestTransactionCommits(t *testing.T) {
	k := realkafka.Start(t)
	topic := k.Topic(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()

	producer := newClient(t, k, kgo.TransactionalID(k.Group(t)), kgo.DefaultProduceTopic(topic))
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		value := fmt.Sprintf("committed=%t", bool(end))
		if err := producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := producer.EndTransaction(ctx, end); err != nil {
			t.Fatal(err)
		}
	}

	consumer := newClient(t, k, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got, want := consume(t, consumer, 1), []string{"committed=true"}; !slices.Equal(got, want) {
		t.Errorf("consumed %v, want %v", got, want)
	}
}

func TestRestartKeepsData(t *testing.T) {
	const partitions = 2
	k := realkafka.Start(t)
	topic, group := k.Topic(t, partitions), k.Group(t)
	want := produce(t, k, topic, partitions, 100)
	ctx, cancel := context.WithTimeout(t.Context(), 3*timeout)
	defer cancel()

	// This client is there before and after, as the clients of real tests are.
	client := newClient(t, k)
	admin := kadm.NewClient(client)
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 1, At: 20, LeaderEpoch: -1})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	before := k.Brokers()

	k.Restart(t)

	if after := k.Brokers(); !slices.Equal(after, before) {
		t.Errorf("brokers are %v after the restart, were %v", after, before)
	}
	if got := consume(t, newClient(t, k, kgo.ConsumeTopics(topic)), len(want)); !slices.Equal(got, want) {
		t.Errorf("consumed %v, want %v", got, want)
	}
	committed, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := committed.Lookup(topic, 1); !ok || o.At != 20 {
		t.Errorf("committed %d (%t), want 20", o.At, ok)
	}
}

func TestNamesAreUnique(t *testing.T) {
	k := realkafka.Start(t)
	t.Run("odd name/with_ünusual.characters", func(t *testing.T) {
		names := map[string]bool{
			k.Topic(t, 1): true,
			k.Topic(t, 1): true,
			k.Group(t):    true,
			k.Group(t):    true,
		}
		if len(names) != 4 {
			t.Errorf("got %v, want 4 names", slices.Collect(maps.Keys(names)))
		}
	})
}
