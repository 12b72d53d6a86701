package strategies_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// parse knows nothing of messages.
func parse(_ context.Context, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, arroyo.Invalid(err)
	}
	return n, nil
}

func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[int]{}
		r := onLane(t, strategies.RunTask(text, strategies.RunTask(strategies.Plain(parse), end, strategies.Name("parse"))))
		r.feed(r.assign(0), "1", "x", "3")
		if diff := cmp.Diff([]int{1, 3}, end.payloads()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"0/1 rejected"}, r.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

func TestRecordKey(t *testing.T) {
	records := strategytest.Messages(t, &kgo.Record{Key: []byte("k")}, &kgo.Record{}, &kgo.Record{Key: []byte{}}).All()
	for i, want := range []string{"k", "", ""} {
		if got := strategies.RecordKey(records[i]); got != want {
			t.Errorf("key %d is %q, want %q", i, got, want)
		}
	}
	if got := strategies.RecordKey(arroyo.With(records[0], 5)); got != "k" {
		t.Errorf("the key of a derived message is %q, want that of its record", got)
	}
	if got := strategies.RecordKey(arroyo.Message[int]{Payload: 5}); got != "" {
		t.Errorf("the key of a message without a record is %q", got)
	}
}

func TestOutgoing(t *testing.T) {
	in := &kgo.Record{
		Topic:       "in",
		Partition:   3,
		Offset:      77,
		Key:         []byte("k"),
		Value:       []byte("v"),
		Headers:     make([]kgo.RecordHeader, 1, 4),
		Timestamp:   time.Unix(1_700_000_000, 0),
		LeaderEpoch: 9,
	}
	in.Headers[0] = kgo.RecordHeader{Key: "trace", Value: []byte("1")}
	m := arroyo.With(strategytest.Messages(t, in).All()[0], "payload")

	out := strategies.Outgoing(m, "out", []byte("w"))
	want := &kgo.Record{Topic: "out", Key: in.Key, Value: []byte("w"), Headers: in.Headers, Timestamp: in.Timestamp}
	if diff := cmp.Diff(want, out, cmpopts.IgnoreUnexported(kgo.Record{}, kgo.RecordAttrs{})); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	out.Headers = append(out.Headers, kgo.RecordHeader{Key: "more"})
	out.Headers[0].Key = "changed"
	if len(in.Headers) != 1 || in.Headers[0].Key != "trace" || in.Headers[:2][1].Key != "" {
		t.Error("a change of the new record's headers changes those of the input")
	}
	if out := strategies.Outgoing(m, "out", nil); out.Value != nil {
		t.Error("a null value is not null any more")
	}
	if out := strategies.Outgoing(arroyo.Message[int]{}, "out", []byte("w")); out.Key != nil || out.Topic != "out" || string(out.Value) != "w" {
		t.Errorf("of a message without a record: %v", out)
	}
	a := strategytest.Messages(t, in, &kgo.Record{Key: []byte("second")}).All()
	if out := strategies.Outgoing(arroyo.Join(0, a), "out", nil); string(out.Key) != "k" {
		t.Errorf("the key of a joined message is %q, want that of its first record", out.Key)
	}
}

func TestPlainFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := onLane(t, strategies.RunTask(strategies.Plain(func(context.Context, *kgo.Record) (int, error) { panic(errFail) }),
			&collect[int]{}, strategies.Name("parse")))
		r.feed(r.assign(0), "1")
		var step *arroyo.StepError
		if err := r.Finish(); !errors.Is(err, errFail) || !errors.As(err, &step) || step.Step != "parse" {
			t.Errorf("the run ended with %v", err)
		}
	})
}
