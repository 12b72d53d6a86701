package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// words is for Unfold: a record's words.
func words(_ context.Context, m arroyo.Message[*kgo.Record]) ([]string, error) {
	return strings.Fields(value(m)), nil
}

// The children of a message come in their order; it is settled when the last
// of them is, and at once if it has none.
func TestUnfold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[string]{}
		r := onLane(t, strategies.Unfold(words, end))
		r.feed(r.assign(0), "a b c", "", "d")
		if diff := cmp.Diff([]string{"a", "b", "c", "d"}, end.payloads()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		children := end.got.all()
		expect := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, r.verdicts()); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		}
		expect("0/1 acked")
		children[3].Ack()
		expect("0/1 acked", "0/2 acked")
		children[2].Ack()
		children[0].Ack()
		children[0].Ack() // twice
		expect("0/1 acked", "0/2 acked")
		children[1].Ack()
		expect("0/1 acked", "0/2 acked", "0/0 acked")
		r.finish()
	})
}

func TestUnfoldVerdicts(t *testing.T) {
	bad := errors.New("bad")
	for _, tt := range []struct {
		name    string
		verdict func(arroyo.Message[string])
		want    string
	}{
		{"one rejected", func(m arroyo.Message[string]) { m.Reject(bad) }, "0/0 rejected"},
		{"one returned", func(m arroyo.Message[string]) { m.Return() }, "0/0 returned"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := &collect[string]{}
				r := onLane(t, strategies.Unfold(words, end))
				e := r.assign(0)
				r.feed(e, "a b c")
				r.drain(e)
				tt.verdict(end.got.all()[1])
				end.ackAll()
				if diff := cmp.Diff([]string{tt.want}, r.verdicts()); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
				if err := r.Verdicts()[0].Err; tt.name == "one rejected" && !errors.Is(err, bad) {
					t.Errorf("rejected because of %v, want %v", err, bad)
				}
				r.finish()
			})
		})
	}
}

// What its function's error means, as for RunTask.
func TestUnfoldErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name     string
		f        func() ([]int, error)
		verdicts []string
		err      error
	}{
		{"invalid", func() ([]int, error) { return []int{1}, arroyo.Invalid(broken) }, []string{"0/0 rejected"}, nil},
		{"drop", func() ([]int, error) { return []int{1}, arroyo.Drop }, []string{"0/0 acked"}, nil},
		{"failure", func() ([]int, error) { return []int{1}, broken }, nil, broken},
		{"panic", func() ([]int, error) { panic(broken) }, nil, broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := &collect[int]{}
				r := onLane(t, strategies.Unfold(func(context.Context, arroyo.Message[*kgo.Record]) ([]int, error) { return tt.f() },
					end, strategies.Name("split")))
				r.feed(r.assign(0), "x")
				if n := len(end.payloads()); n != 0 {
					t.Errorf("%d children were handed on", n)
				}
				if diff := cmp.Diff(tt.verdicts, r.verdicts()); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
				err := r.Finish()
				if !errors.Is(err, tt.err) {
					t.Errorf("the run ended with %v, want %v", err, tt.err)
				}
				var step *arroyo.StepError
				if tt.err != nil && (!errors.As(err, &step) || step.Step != "split" || step.Offset != 0) {
					t.Errorf("the error does not name the step and the record: %v", err)
				}
			})
		})
	}
}

func TestUnfoldRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		end := &collect[int]{}
		r := onLane(t, strategies.Unfold(func(context.Context, arroyo.Message[*kgo.Record]) ([]int, error) {
			if calls++; calls < 3 {
				return nil, errors.New("not yet")
			}
			return []int{calls}, nil
		}, end, strategies.Retry(strategies.RetryPolicy{})))
		r.feed(r.assign(0), "x")
		wait(time.Minute)
		if diff := cmp.Diff([]int{3}, end.payloads()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// Very many children are handed on piece by piece, in order, and each counts.
func TestUnfoldIntoVeryMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[int]{}
		r := onLane(t, strategies.RunTask(asNumber, strategies.Unfold(func(_ context.Context, m arroyo.Message[int]) ([]int, error) {
			children := make([]int, m.Payload)
			for i := range children {
				children[i] = i
			}
			return children, nil
		}, end)))
		e := r.assign(0)
		counts := []int{700, 700, 1, 0, 20_000, 3}
		var values []string
		for _, n := range counts {
			values = append(values, fmt.Sprint(n))
		}
		r.feed(e, values...)
		var want []int
		for _, n := range counts {
			for i := range n {
				want = append(want, i)
			}
		}
		if diff := cmp.Diff(want, end.payloads()); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		end.ackAll()
		if n := r.Unsettled(e); n != 0 {
			t.Errorf("%d messages are not settled", n)
		}
		r.finish()
	})
}
