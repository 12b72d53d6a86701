package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

var rigPartition = arroyo.Partition{Topic: "events", Number: 0}

func rigRecords(from, to int64) (records []*kgo.Record) {
	for o := from; o < to; o++ {
		records = append(records, &kgo.Record{Topic: "events", Offset: o})
	}
	return records
}

// told says what a rig's verdicts were: "0 acked", say.
func told(rig *arroyo.Rig) (texts []string) {
	for _, v := range rig.Verdicts() {
		texts = append(texts, fmt.Sprintf("%d %s", v.Record.Offset, v.Kind))
	}
	return texts
}

// holder keeps what it is given until it is flushed.
type holder struct {
	held    []arroyo.Message[*kgo.Record]
	flushes []bool // whether it was because of the bound
}

func (h *holder) Submit(_ context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	h.held = append(h.held, msgs...)
	return nil
}

func (h *holder) Flush(ctx context.Context) error {
	h.flushes = append(h.flushes, arroyo.AtBound(ctx))
	of := arroyo.FlushOf(ctx)
	for _, m := range h.held {
		if of(m.Epoch()) {
			m.Ack()
		}
	}
	return nil
}

func (h *holder) Close(context.Context) error { return nil }

func TestRigVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		rig := arroyo.NewRig(strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if m.Payload.Offset == 1 {
				return arroyo.Invalid(bad)
			}
			return nil
		}))
		rig.Watch()
		e := rig.Assign(rigPartition)
		if _, known := rig.Watermark(e); known {
			t.Error("there is a watermark before there is a record")
		}
		rig.Feed(e, rigRecords(0, 3)...)
		if err := rig.Settle(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"0 acked", "1 rejected", "2 acked"}, told(rig)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if err := rig.Verdicts()[1].Err; !errors.Is(err, bad) {
			t.Errorf("rejected with %v, want %v", err, bad)
		}
		if offset, _ := rig.Watermark(e); offset != 3 {
			t.Errorf("the watermark is %d, want 3", offset)
		}
		if err := rig.Finish(); err != nil {
			t.Error(err)
		}
	})
}

func TestRigDrainAndFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holder{}
		rig := arroyo.NewRig(h)
		rig.Watch()
		a, b := rig.Assign(rigPartition), rig.Assign(arroyo.Partition{Topic: "events", Number: 1})
		rig.Feed(a, rigRecords(0, 2)...)
		rig.Feed(b, rigRecords(10, 12)...)
		synctest.Wait()
		rig.FlushAtBound(b)
		synctest.Wait()
		if rig.Unsettled(a) != 2 || rig.Unsettled(b) != 0 {
			t.Errorf("%d and %d are left after a flush of b, want 2 and 0", rig.Unsettled(a), rig.Unsettled(b))
		}
		rig.Drain(a)
		synctest.Wait()
		if rig.Unsettled(a) != 0 {
			t.Errorf("%d of a are left after its drain", rig.Unsettled(a))
		}
		rig.Feed(b, rigRecords(12, 13)...)
		synctest.Wait()
		rig.Fence(b)
		last := h.held[len(h.held)-1]
		if !last.Fenced() || last.Epoch() != b {
			t.Error("a message of a fenced epoch is not fenced")
		}
		last.Ack()
		if diff := cmp.Diff([]string{"10 acked", "11 acked", "0 acked", "1 acked"}, told(rig)); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if err := rig.Finish(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]bool{true, false, false}, h.flushes); diff != "" {
			t.Errorf("flushes because of the bound (-want +got):\n%s", diff)
		}
	})
}

func TestRigFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad")
		rig := arroyo.NewRig(strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error { return bad }))
		rig.Feed(rig.Assign(rigPartition), rigRecords(0, 1)...)
		if err := rig.Settle(); !errors.Is(err, bad) {
			t.Errorf("Settle: %v, want %v", err, bad)
		}
		if err := rig.Finish(); !errors.Is(err, bad) {
			t.Errorf("Finish: %v, want %v", err, bad)
		}
	})
	synctest.Test(t, func(t *testing.T) { // who returns outside of a drain
		h := &holder{}
		rig := arroyo.NewRig(h)
		rig.Feed(rig.Assign(rigPartition), rigRecords(0, 1)...)
		synctest.Wait()
		h.held[0].Return()
		if err := rig.Finish(); !errors.Is(err, arroyo.ErrReturned) {
			t.Errorf("Finish: %v, want %v", err, arroyo.ErrReturned)
		}
	})
	synctest.Test(t, func(t *testing.T) { // who waits for ever
		rig := arroyo.NewRig(strategies.ForEach(func(ctx context.Context, _ arroyo.Message[*kgo.Record]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		rig.Feed(rig.Assign(rigPartition), rigRecords(0, 1)...)
		synctest.Wait()
		rig.Abandon()
		<-rig.Done()
		if err := rig.Err(); err != nil {
			t.Errorf("Err: %v, want none: it was told to end", err)
		}
	})
}

func TestRigHandedOn(t *testing.T) {
	rig := arroyo.NewRig(strategies.Noop[*kgo.Record]())
	defer rig.Finish()
	e := rig.Assign(rigPartition)
	msgs := rig.Messages(e, rigRecords(0, 70)...)
	children := arroyo.Split(msgs[3], []int{1, 2})
	acked := arroyo.With(msgs[4], "x")
	acked.Ack()
	rejoined := arroyo.Join(0, children)
	for i, tt := range []struct {
		err  error
		want string
	}{
		{arroyo.HandedOn(rig, msgs[0]), ""},
		{arroyo.HandedOn(rig, arroyo.With(msgs[0], 1)), "events/0 offset 0 is handed on twice"},
		{arroyo.HandedOn(rig, arroyo.Join(1, msgs[1:3])), ""},
		{arroyo.HandedOn(rig, arroyo.Join(1, msgs[2:3])), "events/0 offset 2 is handed on twice"},
		{arroyo.HandedOn(rig, rejoined), ""}, // both children at once
		{arroyo.HandedOn(rig, children[0]), "events/0 offset 3 is handed on twice"},
		{arroyo.HandedOn(rig, arroyo.Split(msgs[3], []int{1})[0]), "events/0 offset 3 is handed on twice"},
		{arroyo.HandedOn(rig, acked), "events/0 offset 4 is handed on although it is settled"},
		{arroyo.HandedOn(rig, msgs[69]), ""},
		{arroyo.HandedOn(rig, arroyo.Message[int]{}), ""},
	} {
		if got := fmt.Sprint(tt.err); tt.err == nil && tt.want != "" || tt.err != nil && got != tt.want {
			t.Errorf("%d: %v, want %q", i, tt.err, tt.want)
		}
	}
}

// A pipeline without a broker.
func ExampleRig() {
	rig := arroyo.NewRig(strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
		if len(m.Payload.Value) == 0 {
			return arroyo.Invalid(errors.New("empty"))
		}
		return nil
	}))
	rig.Watch()
	epoch := rig.Assign(arroyo.Partition{Topic: "orders", Number: 0})
	rig.Feed(epoch, &kgo.Record{Offset: 0, Value: []byte("a")}, &kgo.Record{Offset: 1})
	if err := rig.Settle(); err != nil {
		log.Fatal(err)
	}
	for _, v := range rig.Verdicts() {
		fmt.Println(v.Record.Offset, v.Kind)
	}
	offset, _ := rig.Watermark(epoch)
	fmt.Println("next:", offset)
	fmt.Println("ended:", rig.Finish())
	// Output:
	// 0 acked
	// 1 rejected
	// next: 2
	// ended: <nil>
}

// patient is a step that holds everything back, and says why it lets go.
type patient struct {
	arroyo.Forward[*kgo.Record]
	held []arroyo.Message[*kgo.Record]
}

func (p *patient) Submit(_ context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	p.held = append(p.held, msgs...)
	return nil
}

func (p *patient) Flush(ctx context.Context) error {
	fmt.Println(len(p.held), "messages; because there is no room for more:", arroyo.AtBound(ctx))
	held := p.held
	p.held = nil
	if err := p.Next.Submit(ctx, held); err != nil {
		return err
	}
	return p.Next.Flush(ctx)
}

func ExampleAtBound() {
	rig := arroyo.NewRig(&patient{Forward: arroyo.ForwardTo(strategies.Noop[*kgo.Record]())})
	epoch := rig.Assign(arroyo.Partition{Topic: "orders", Number: 0})
	rig.Feed(epoch, &kgo.Record{Offset: 0})
	rig.Wait()
	rig.FlushAtBound()
	fmt.Println(rig.Settle(), rig.Finish())
	// Output:
	// 1 messages; because there is no room for more: true
	// 0 messages; because there is no room for more: false
	// <nil> <nil>
}
