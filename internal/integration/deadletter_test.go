package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// startRejecting starts a member that rejects every record.
func (c *cluster) startRejecting(t *testing.T, dead string, opts []kgo.Opt) (*arroyo.Processor, *member) {
	t.Helper()
	pipeline := strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
		return arroyo.Invalid(errors.New("poison"))
	}, strategies.Name("insert"))
	processor, err := arroyo.NewProcessor(c.consumer(t, arroyo.ClientOptions(opts...)), pipeline,
		arroyo.CommitInterval(200*time.Millisecond), arroyo.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))),
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{cancel, make(chan error, 1)}
	go func() { m.err <- processor.Run(ctx) }()
	return processor, m
}

// read returns the records of a topic, which has one partition.
func (c *cluster) read(t *testing.T, topic string, n int) (records []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(append(c.kafka.ClientOptions(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().AtStart()},
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v, after %d records", topic, err, len(records))
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// Invalid messages end in the dead-letter topic as they came, nulls and all,
// and their offsets are committed.
func TestDeadLetters(t *testing.T) {
	for protocol, opts := range protocols {
		t.Run(protocol, func(t *testing.T) {
			c := newCluster(t, 2)
			dead := c.kafka.Topic(t, 1)
			at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
			in := []*kgo.Record{
				{Key: []byte("k"), Value: []byte("v")},
				{Value: []byte("v")},
				{Key: []byte("k")},
				{Key: []byte{}, Value: []byte{}},
				{Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte("2")}, {Key: "original_offset", Value: []byte("x")}}},
			}
			for _, r := range in {
				r.Topic, r.Partition, r.Timestamp = c.topic, 1, at
			}
			if err := c.client.ProduceSync(t.Context(), in...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			processor, m := c.startRejecting(t, dead, opts)
			eventually(t, "all offsets committed", 30*time.Second, func() bool { return sum(c.committed(t)) == int64(len(in)) })
			if s := processor.Status().DeadLetters; s.Delivered != int64(len(in)) || s.Pending != 0 || s.Err != nil {
				t.Errorf("status: %+v", s)
			}
			m.stop(t)
			for i, letter := range c.read(t, dead, len(in)) {
				got, origin, err := arroyo.ReadDeadLetter(letter)
				if err != nil {
					t.Fatal(err)
				}
				if want := describe(in[i]); describe(got) != want {
					t.Errorf("got  %s\nwant %s", describe(got), want)
				}
				if origin.Partition != (arroyo.Partition{Topic: c.topic, Number: 1}) || origin.Offset != int64(i) ||
					origin.Group != c.group || origin.Step != "insert" || origin.Reason != "poison" {
					t.Errorf("origin: %+v", origin)
				}
			}
		})
	}
}

func describe(r *kgo.Record) string {
	text := fmt.Sprintf("%s/%d at %d: key %q (null: %v), value %q (null: %v)", r.Topic, r.Partition, r.Timestamp.UnixMilli(), r.Key, r.Key == nil, r.Value, r.Value == nil)
	for _, h := range r.Headers {
		text += fmt.Sprintf(", %s=%q (null: %v)", h.Key, h.Value, h.Value == nil)
	}
	return text
}

// A dead-letter topic that is made only later: the processor says so, waits,
// and goes on.
func TestDeadLetterTopicIsMissing(t *testing.T) {
	c := newCluster(t, 1)
	dead := c.topic + "-dead"
	processor, m := c.startRejecting(t, dead, nil)
	c.produce(t, 100)
	eventually(t, "an error in Status", 30*time.Second, func() bool {
		return errors.Is(processor.Status().DeadLetters.Err, kerr.UnknownTopicOrPartition)
	})
	if n := sum(c.committed(t)); n > 0 {
		t.Errorf("%d is committed", n)
	}
	if _, err := kadm.NewClient(c.client).CreateTopic(t.Context(), 1, -1, nil, dead); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all offsets committed", 30*time.Second, func() bool { return sum(c.committed(t)) == 100 })
	m.stop(t)
	if n := len(c.read(t, dead, 100)); n != 100 {
		t.Errorf("%d letters", n)
	}
}

// A dead-letter topic that takes less than the client puts into one batch: the
// letters go out in smaller ones.
func TestDeadLetterTopicTakesSmallBatches(t *testing.T) {
	c := newCluster(t, 1)
	dead := c.topic + "-dead"
	most := "4000"
	if _, err := kadm.NewClient(c.client).CreateTopic(t.Context(), 1, -1, map[string]*string{"max.message.bytes": &most}, dead); err != nil {
		t.Fatal(err)
	}
	c.produce(t, 1000) // in one fetch, so that many letters are written at once
	_, m := c.startRejecting(t, dead, []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())})
	eventually(t, "all offsets committed", time.Minute, func() bool { return sum(c.committed(t)) == 1000 })
	m.stop(t)
	seen := make(map[int64]bool)
	for _, letter := range c.read(t, dead, 1000) {
		_, origin, err := arroyo.ReadDeadLetter(letter)
		if err != nil {
			t.Fatal(err)
		}
		seen[origin.Offset] = true
	}
	if len(seen) != 1000 {
		t.Errorf("letters of %d records, want 1000", len(seen))
	}
}
