package strategytest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

var errNegative = errors.New("negative")

// insert rejects the rows that are negative, the last one first, and acks the
// others.
func insert(_ context.Context, rows []arroyo.Message[int]) error {
	for i := len(rows) - 1; i >= 0; i-- {
		if rows[i].Payload < 0 {
			rows[i].Reject(errNegative)
		}
	}
	arroyo.AckAll(rows)
	return nil
}

func TestMessages(t *testing.T) {
	rows := strategytest.Messages(t, 3, -1, 5, -2)
	if err := insert(t.Context(), rows.All()); err != nil {
		t.Fatal(err)
	}
	want := []strategytest.Verdict{
		{Message: 3, Kind: arroyo.Rejected, Err: errNegative},
		{Message: 1, Kind: arroyo.Rejected, Err: errNegative},
		{Message: 0, Kind: arroyo.Acked},
		{Message: 2, Kind: arroyo.Acked},
	}
	if diff := cmp.Diff(want, rows.Verdicts(), cmpopts.EquateErrors()); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

func TestMessagesOfRecords(t *testing.T) {
	record := &kgo.Record{Topic: "orders", Offset: 77, Key: []byte("k")}
	m := strategytest.Messages(t, record).All()[0]
	if m.Payload != record || m.Record() != record || record.Offset != 77 {
		t.Error("the record is another one, or was changed")
	}
}

func TestMessagesOfADrain(t *testing.T) {
	msgs := strategytest.Messages(t, "a", "b")
	a, b := msgs.All()[0], msgs.All()[1]
	if a.ReturnIfDraining() {
		t.Error("a message was returned outside of a drain")
	}
	msgs.Drain()
	a.Return()
	msgs.Fence()
	if !b.Fenced() {
		t.Error("the message of an epoch that is over is not fenced")
	}
	b.Ack()
	want := []strategytest.Verdict{{Message: 0, Kind: arroyo.Returned}}
	if diff := cmp.Diff(want, msgs.Verdicts()); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
}

// tb is a testing.TB that keeps what it is told.
type tb struct {
	testing.TB
	cleanup func()
	errors  []any
}

func (t *tb) Helper()           {}
func (t *tb) Cleanup(f func())  { t.cleanup = f }
func (t *tb) Error(args ...any) { t.errors = append(t.errors, args...) }

func TestMessagesReturnedOutsideOfADrain(t *testing.T) {
	fake := &tb{TB: t}
	strategytest.Messages(fake, 1).All()[0].Return()
	fake.cleanup()
	if len(fake.errors) != 1 || !errors.Is(fake.errors[0].(error), arroyo.ErrReturned) {
		t.Errorf("the test was told %v, want %v", fake.errors, arroyo.ErrReturned)
	}
}
