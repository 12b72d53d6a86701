package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Under an epoch's context Draining is that epoch's drain; under a lane's, also
// a fork's, the next drain or loss of any.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			epochs = make(map[int32]<-chan struct{})
			lanes  []func() <-chan struct{}
		)
		r := arroyo.NewRig(newForked(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			for _, m := range msgs {
				epochs[m.Epoch().Number] = arroyo.Draining(ctx)
			}
			if lane := arroyo.LaneOf(ctx); lanes == nil {
				lanes = append(lanes, func() <-chan struct{} { return arroyo.Draining(lane.Context()) })
				branch := arroyo.LaneOf(arroyo.WithBranch(ctx, "b"))
				lanes = append(lanes, func() <-chan struct{} { return arroyo.Draining(branch.Context()) })
			}
			return nil
		}}))
		e0, e1, e2 := r.Assign(partition0), r.Assign(partition1), r.Assign(arroyo.Partition{Topic: topic, Number: 2})
		r.Feed(e0, recordsFrom(0, "a")...)
		r.Feed(e1, recordsFrom(0, "b")...)
		r.Feed(e2, recordsFrom(0, "c")...)
		synctest.Wait()
		for _, tt := range []struct {
			name  string
			begin func()
			want  []bool // of the epochs, whether they drain
		}{
			{"nothing", func() {}, []bool{false, false, false}},
			{"a drain", func() { r.Drain(e0) }, []bool{true, false, false}},
			{"a loss", func() { r.Fence(e1) }, []bool{true, false, false}},
			{"the end", r.Stop, []bool{true, false, true}}, // the lost one is over
		} {
			var before []<-chan struct{}
			for _, lane := range lanes {
				before = append(before, lane())
			}
			tt.begin()
			synctest.Wait()
			for i, c := range before {
				if isClosed(c) != (tt.name != "nothing") {
					t.Errorf("%s: the lane's channel %d is closed: %v", tt.name, i, isClosed(c))
				}
			}
			if lanes[0]() == before[0] && tt.name != "nothing" {
				t.Errorf("%s: the lane has no channel for the next one", tt.name)
			}
			for i, want := range tt.want {
				if got := isClosed(epochs[int32(i)]); got != want {
					t.Errorf("%s: partition %d drains: %v, want %v", tt.name, i, got, want)
				}
			}
		}
		r.Abandon() // what was submitted stays unsettled
		<-r.Done()
		if arroyo.Draining(t.Context()) != nil {
			t.Error("without a lane, Draining is not nil")
		}
	})
}

// FlushOf names the epochs that a Flush is about.
func TestFlushOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e0, e1 arroyo.Epoch
		var got []string
		r := arroyo.NewRig(newForked(step{flush: func(ctx context.Context) error {
			of := arroyo.FlushOf(ctx)
			got = append(got, fmt.Sprint(of(e0), of(e1)))
			return nil
		}}))
		e0, e1 = r.Assign(partition0), r.Assign(partition1)
		r.FlushAtBound(e0)
		synctest.Wait()
		r.FlushAtBound()
		synctest.Wait()
		r.Drain(e1)
		synctest.Wait()
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"true false", "true true", "false true", "true true"}, got); diff != "" {
			t.Errorf("flushes (-want +got):\n%s", diff)
		}
		if !arroyo.FlushOf(t.Context())(e0) {
			t.Error("a Flush that names nothing is not about everything")
		}
	})
}

// ReturnIfDraining returns what drains, and no more.
func TestReturnIfDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(step{})
		r.Watch()
		e0, e1 := r.Assign(partition0), r.Assign(partition1)
		a := r.Messages(e0, recordsFrom(0, "a0", "a1", "a2", "a3")...)
		b := r.Messages(e1, recordsFrom(0, "b0", "b1")...)
		joined := arroyo.Join("joined", []arroyo.Message[*kgo.Record]{a[1], b[0]})
		child := arroyo.Split(a[2], []string{"x", "y"})[0]
		ofBoth := arroyo.Split(arroyo.Join("", []arroyo.Message[*kgo.Record]{a[3], b[1]}), []string{"x"})[0]

		if a[0].ReturnIfDraining() || joined.ReturnIfDraining() || child.ReturnIfDraining() || len(r.Verdicts()) > 0 {
			t.Fatal("something was returned outside of a drain")
		}
		r.Drain(e0)
		if !a[0].ReturnIfDraining() {
			t.Error("a message that drains is not returned")
		}
		if joined.ReturnIfDraining() || !a[1].Settled() || b[0].Settled() {
			t.Error("of a joined message the member that drains has to be returned, and no other")
		}
		if !child.ReturnIfDraining() || a[2].Settled() {
			t.Error("a child that drains has to be returned, and its parent only with its other children")
		}
		if ofBoth.ReturnIfDraining() || a[3].Settled() {
			t.Error("a child of a message of two epochs was returned when one of them drained")
		}
		joined.Ack()
		r.Drain(e1)
		if !ofBoth.ReturnIfDraining() || !a[3].Settled() || !b[1].Settled() {
			t.Error("a child of a message of two epochs was not returned when both drained")
		}
		if (arroyo.Message[int]{}).ReturnIfDraining() {
			t.Error("a message without a record cannot be returned")
		}
		var got []string
		for _, v := range r.Verdicts() {
			got = append(got, fmt.Sprintf("%s %s", v.Record.Value, v.Kind))
		}
		slices.Sort(got)
		want := []string{"a0 returned", "a1 returned", "a3 returned", "b0 acked", "b1 returned"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
	})
}

// MayReturn is about what can be returned as a whole, and undoes nothing.
func TestMayReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(step{})
		e0, e1 := r.Assign(partition0), r.Assign(partition1)
		a := r.Messages(e0, recordsFrom(0, "a0", "a1", "a2", "a3", "a4", "a5")...)
		b := r.Messages(e1, recordsFrom(0, "b0")...)
		type messages = []arroyo.Message[*kgo.Record]
		child := arroyo.Split(a[4], []string{"x", "y"})[0]
		mayReturn := map[string]func() bool{
			"one":                   a[0].MayReturn,
			"of two epochs":         arroyo.Join("", messages{a[1], b[0]}).MayReturn,
			"of one epoch":          arroyo.Join("", messages{a[2], a[3]}).MayReturn,
			"one of two children":   child.MayReturn,
			"joined with its child": arroyo.Join("", []arroyo.Message[string]{child}).MayReturn,
			"its child's child":     arroyo.Split(child, []int{1})[0].MayReturn,
			"an only child":         arroyo.Split(a[5], []string{"x"})[0].MayReturn,
			"without a record":      arroyo.Message[int]{}.MayReturn,
		}
		expect := func(when string, want ...string) {
			t.Helper()
			for name, may := range mayReturn {
				if got := may(); got != slices.Contains(want, name) {
					t.Errorf("%s: %s: %v", when, name, got)
				}
			}
		}
		expect("no drain")
		r.Drain(e0)
		expect("the first drains", "one", "of one epoch", "an only child")
		r.Drain(e1)
		expect("both drain", "one", "of one epoch", "an only child", "of two epochs")
		r.Abandon()
		<-r.Done()
	})
}

// Offsets are those of the message's records of an epoch.
func TestOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(step{})
		e0, e1 := r.Assign(partition0), r.Assign(partition1)
		a := r.Messages(e0, recordsFrom(10, make([]string, 100)...)...)
		b := r.Messages(e1, recordsFrom(7, "b0")...)
		joined := arroyo.Join("", []arroyo.Message[*kgo.Record]{a[90], b[0], a[3], a[20]})
		for _, tt := range []struct {
			name        string
			offsets     func(arroyo.Epoch) (int64, int64, bool)
			of          arroyo.Epoch
			first, last int64
			ok          bool
		}{
			{"one", a[5].Offsets, e0, 15, 15, true},
			{"joined", joined.Offsets, e0, 13, 100, true},
			{"joined, the other", joined.Offsets, e1, 7, 7, true},
			{"child", arroyo.Split(joined, []int{1, 2})[1].Offsets, e0, 13, 100, true},
			{"other epoch", a[5].Offsets, e1, 0, 0, false},
			{"joined, other epoch", arroyo.Join("", a[:2]).Offsets, e1, 0, 0, false},
			{"none", arroyo.Message[int]{}.Offsets, e0, 0, 0, false},
		} {
			first, last, ok := tt.offsets(tt.of)
			if ok != tt.ok || ok && (first != tt.first || last != tt.last) {
				t.Errorf("%s: %d to %d (%v), want %d to %d (%v)", tt.name, first, last, ok, tt.first, tt.last, tt.ok)
			}
		}
		r.Abandon()
		<-r.Done()
	})
}

// ByEpoch's runs are what slicing by each message's epochs gives.
func TestByEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(step{})
		e0, e1 := r.Assign(partition0), r.Assign(partition1)
		a := r.Messages(e0, recordsFrom(0, make([]string, 150)...)...) // three spans
		b := r.Messages(e1, recordsFrom(0, make([]string, 4)...)...)
		join := func(ms ...arroyo.Message[*kgo.Record]) arroyo.Message[*kgo.Record] {
			return arroyo.Join((*kgo.Record)(nil), ms)
		}
		msgs := slices.Concat(a[:140], b[:2], a[140:141], []arroyo.Message[*kgo.Record]{
			join(a[141], a[142]), a[143], join(a[144], b[2]), join(a[145], b[3]), {}, {},
		}, a[146:])
		type run struct {
			Epoch arroyo.Epoch
			N     int
		}
		var got []run
		n := 0
		for e, part := range arroyo.ByEpoch(msgs) {
			if &part[0] != &msgs[n] || cap(part) != len(part) {
				t.Errorf("run %d is not a part of the messages", len(got))
			}
			n += len(part)
			got = append(got, run{e, len(part)})
		}
		var none arroyo.Epoch
		want := []run{{e0, 140}, {e1, 2}, {e0, 3}, {none, 1}, {none, 1}, {none, 1}, {none, 1}, {e0, 4}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
		for range arroyo.ByEpoch(msgs) {
			break
		}
		r.Abandon()
		<-r.Done()
		if err := r.Err(); err != nil && !errors.Is(err, arroyo.ErrAbandoned) {
			t.Fatal(err)
		}
	})
}
