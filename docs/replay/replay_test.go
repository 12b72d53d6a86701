package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/realkafka"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) { os.Exit(realkafka.Main(m)) }

// ingest is a consumer with dead letters: values have to be numbers, and until
// it is mended no more than 99.
func ingest(events, dead, group string, mended *atomic.Bool, opts []kgo.Opt, hooks ...any) (*arroyo.Processor, error) {
	consumer, err := arroyo.NewConsumer(group, []string{events}, arroyo.ClientOptions(opts...))
	if err != nil {
		return nil, err
	}
	return arroyo.NewProcessor(consumer, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		n, err := strconv.Atoi(string(m.Payload.Value))
		switch {
		case err != nil:
			return arroyo.Invalid(errors.New("not a number"))
		case n > 99 && !mended.Load():
			return arroyo.Invalid(errors.New("too much"))
		}
		return nil
	}), arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead}), arroyo.Logger(slog.New(slog.DiscardHandler)), arroyo.Hooks(hooks...))
}

// world is a broker with a consumer that has rejected some of these records.
type world struct {
	*memkafka.Broker
	t      *testing.T
	mended atomic.Bool
	stop   func() error
}

func record(partition int32, key, value string, headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: "events", Partition: partition, Value: []byte(value), Timestamp: time.UnixMilli(915148800123)}
	if key != "" {
		r.Key = []byte(key)
	}
	for _, h := range headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h, Value: []byte(h + "!")})
	}
	return r
}

func newWorld(t *testing.T) *world {
	w := &world{Broker: memkafka.New(t, memkafka.Topic("events", 3), memkafka.Topic("events.dead", 2)), t: t}
	processor, err := ingest("events", "events.dead", "ingest", &w.mended, w.ClientOptions())
	if err != nil {
		t.Fatal(err)
	}
	w.stop = memkafka.Start(t, processor.Run)
	tombstone := record(2, "k", "")
	tombstone.Value = nil
	w.ProduceRecords(record(0, "", "1"), record(0, "a", "100"), record(1, "", "x", "h", "i", "h"), record(2, "", "200"), tombstone)
	w.WaitCommitted("ingest", "events", 5)
	return w
}

// replay runs the program and returns what it prints.
func (w *world) replay(args ...string) (string, error) {
	var out bytes.Buffer
	err := run(w.t.Context(), append([]string{"-from", "events.dead"}, args...), &out, w.ClientOptions()...)
	return out.String(), err
}

// began are the offsets of the topic when the world begins.
var began = map[int32]int64{0: 2, 1: 1, 2: 2}

// replayed returns what was produced to the topic since then.
func (w *world) replayed() (records []string) {
	for _, r := range w.Records("events") {
		if r.Offset >= began[r.Partition] {
			records = append(records, describe(r))
		}
	}
	slices.Sort(records)
	return records
}

func describe(r *kgo.Record) string {
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, fmt.Sprintf("%s=%s", h.Key, h.Value))
	}
	return fmt.Sprintf("%d: %q %q %v", r.Partition, r.Key, r.Value, headers)
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The whole way: rejected, mended, replayed, processed.
func TestOriginalsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mended.Store(true)
		out, err := w.replay()
		if err != nil || !strings.HasSuffix(out, "\n4 replayed, 0 passed over for their reasons, 0 left\n") {
			t.Errorf("%v\n%s", err, out)
		}
		expect(t, "records", w.replayed(), []string{`0: "a" "100" []`, `1: "" "x" [h=h! i=i! h=h!]`, `2: "" "200" []`, `2: "k" "" []`})
		for _, r := range w.Records("events") {
			if !r.Timestamp.Equal(time.UnixMilli(915148800123)) {
				t.Errorf("the time of %s is %v", describe(r), r.Timestamp)
			}
			if string(r.Key) == "k" && r.Value != nil {
				t.Errorf("the null of %s is %q", describe(r), r.Value)
			}
		}
		// Two are done with now, the others are bad for ever: the replay has
		// ended all the same, and the next one takes them.
		w.WaitCommitted("ingest", "events", 9)
		if n := len(w.Records("events.dead")); n != 6 {
			t.Errorf("%d dead letters, want the first four, and two again", n)
		}
		if out, err := w.replay("-dry-run"); err != nil || !strings.HasSuffix(out, "\n2 would be replayed, 0 passed over for their reasons, 0 left\n") {
			t.Errorf("the next one: %v\n%s", err, out)
		}
	})
}

// A dry run tells what would be, and does nothing.
func TestDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 2 {
			out, err := w.replay("-dry-run")
			if err != nil || strings.Count(out, "too much\n") != 2 || strings.Count(out, "not a number\n") != 2 || !strings.Contains(out, "events/1 offset 0: not a number") {
				t.Errorf("%v\n%s", err, out)
			}
		}
		if got := w.replayed(); len(got) > 0 {
			t.Errorf("it produced %v", got)
		}
		w.mended.Store(true)
		if out, err := w.replay(); err != nil || !strings.Contains(out, "4 replayed") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

func TestFilterByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mended.Store(true)
		if out, err := w.replay("-reason", "^too"); err != nil || !strings.Contains(out, "2 replayed, 2 passed over for their reasons, 0 left\n") {
			t.Errorf("%v\n%s", err, out)
		}
		expect(t, "records", w.replayed(), []string{`0: "a" "100" []`, `2: "" "200" []`})
		if out, err := w.replay(); err != nil || !strings.HasPrefix(out, "0 replayed, 0 passed over") {
			t.Errorf("the same group again: %v\n%s", err, out)
		}
		if out, err := w.replay("-group", "other", "-reason", "number"); err != nil || !strings.Contains(out, "2 replayed, 2 passed over") {
			t.Errorf("another group: %v\n%s", err, out)
		}
	})
}

// What is not a dead letter is told of and left, and the others are replayed.
// Letters of Sentry's Arroyo need a topic.
func TestWhatIsNotALetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.mended.Store(true)
		sentry := record(1, "", "300", "h")
		sentry.Topic = "events.dead"
		sentry.Headers = append(sentry.Headers, kgo.RecordHeader{Key: "original_partition", Value: []byte("1")}, kgo.RecordHeader{Key: "original_offset", Value: []byte("7")})
		other := record(1, "", "hello")
		other.Topic = "events.dead"
		w.ProduceRecords(other, sentry)
		out, err := w.replay("-now")
		if err != nil || !strings.Contains(out, "4 replayed, 0 passed over for their reasons, 2 left\n") ||
			!strings.Contains(out, "the record is not a dead letter") || !strings.Contains(out, "does not tell the topic") {
			t.Errorf("%v\n%s", err, out)
		}
		for _, r := range w.Records("events") {
			if isNew := time.Since(r.Timestamp) < time.Minute; isNew != (r.Offset >= began[r.Partition]) {
				t.Errorf("the time of %s is %v", describe(r), r.Timestamp)
			}
		}
		out, err = w.replay("-group", "again", "-topic", "events", "-reason", "^$")
		if err != nil || !strings.Contains(out, "1 replayed, 4 passed over for their reasons, 1 left\n") {
			t.Errorf("%v\n%s", err, out)
		}
		if got := w.replayed(); !slices.Contains(got, `1: "" "300" [h=h!]`) {
			t.Errorf("records: %v", got)
		}
	})
}

// While the topic cannot be written nothing is committed; afterwards nothing is
// left out.
func TestReplayThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		fault := w.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic("events"))
		if out, err := w.replay(); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.HasSuffix(out, "\n0 replayed, 0 passed over for their reasons, 0 left\n") {
			t.Errorf("%v\n%s", err, out)
		}
		fault.Heal()
		w.mended.Store(true)
		if out, err := w.replay(); err != nil || !strings.Contains(out, "4 replayed") {
			t.Errorf("%v\n%s", err, out)
		}
		expect(t, "records", len(w.replayed()), 4)
	})
}

// Ctrl-C ends it, also while no broker answers.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Swallow(kmsg.Produce, memkafka.OnTopic("events"))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		var out bytes.Buffer
		err := run(ctx, []string{"-from", "events.dead"}, &out, w.ClientOptions()...)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 30*time.Second {
			t.Errorf("after %v: %v\n%s", time.Since(began), err, out.String())
		}
	})
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"-from is missing": {},
		"-reason: error":   {"-from", "x", "-reason", "("},
		"not defined":      {"-form", "x"},
	} {
		if err := run(t.Context(), args, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error that says %q", args, err, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("empty", 2))
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-from", "empty"}, &out, broker.ClientOptions()...); err != nil || !strings.HasPrefix(out.String(), "0 replayed") {
			t.Errorf("an empty topic: %v\n%s", err, out.String())
		}
		if err := run(t.Context(), []string{"-from", "missing"}, &out, broker.ClientOptions()...); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("no such topic: %v", err)
		}
	})
}
