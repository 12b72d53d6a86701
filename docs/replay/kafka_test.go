package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/realkafka"
)

// The whole way on a real Kafka: rejected, mended, replayed, processed.
func TestOnKafka(t *testing.T) {
	kafka := realkafka.Start(t)
	events, dead, group := kafka.Topic(t, 3), kafka.Topic(t, 2), kafka.Group(t)
	client, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tombstone := record(2, "k", "")
	tombstone.Value = nil
	in := []*kgo.Record{record(0, "", "1"), record(0, "a", "100"), record(1, "", "x", "h", "i", "h"), record(2, "", "200"), tombstone}
	for _, r := range in {
		r.Topic, r.Timestamp = events, time.Now().Add(-time.Hour)
	}
	if err := client.ProduceSync(t.Context(), in...).FirstErr(); err != nil {
		t.Fatal(err)
	}

	var mended atomic.Bool
	at := make(map[int32]int64) // committed
	// consume runs the consumer until so much is committed.
	consume := func(until int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		committed := &commits{until: until, done: cancel, at: at}
		processor, err := ingest(events, dead, group, &mended, kafka.ClientOptions(), committed)
		if err != nil {
			t.Fatal(err)
		}
		if err := processor.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !committed.enough {
			t.Fatalf("committed %v within a minute, want %d", at, until)
		}
	}
	consume(5)
	for _, want := range []string{"4 would be replayed", "2 replayed, 2 passed over"} {
		args := []string{"-brokers", strings.Join(kafka.Brokers(), ","), "-group", group + "-replay", "-from", dead}
		if strings.Contains(want, "would") {
			args = append(args, "-dry-run")
		} else {
			args = append(args, "-reason", "too much")
			mended.Store(true)
		}
		var out bytes.Buffer
		if err := run(t.Context(), args, &out); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v\n%s", err, out.String())
		}
	}
	consume(7)

	reader, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		events: {0: kgo.NewOffset().At(2), 2: kgo.NewOffset().At(2)},
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := make(map[string]time.Time)
	for len(got) < 2 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v, after %v", err, got)
		}
		for _, r := range fetches.Records() {
			got[describe(r)] = r.Timestamp
		}
	}
	for i, want := range map[int]string{1: `0: "a" "100" []`, 3: `2: "" "200" []`} {
		if at, ok := got[want]; !ok || at.UnixMilli() != in[i].Timestamp.UnixMilli() {
			t.Errorf("records %v, want %s of %v", got, want, in[i].Timestamp)
		}
	}
}

// commits is a hook that ends the run when it has committed enough.
type commits struct {
	until int64
	done  func()

	mu     sync.Mutex
	at     map[int32]int64
	enough bool
}

func (c *commits) OnCommitted(offsets map[arroyo.Epoch]int64, _ time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return
	}
	var n int64
	for e, o := range offsets {
		c.at[e.Number] = o
	}
	for _, o := range c.at {
		n += o
	}
	if n >= c.until {
		c.enough = true
		c.done()
	}
}
