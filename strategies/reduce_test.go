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

func empty() []string { return nil }

// gather puts values together; "bad" is invalid, "skip" is dropped, "fail" is a
// failure and "panic" panics.
func gather(values []string, m arroyo.Message[*kgo.Record]) ([]string, error) {
	switch v := value(m); v {
	case "bad":
		return nil, arroyo.Invalid(errors.New("bad"))
	case "skip":
		return nil, arroyo.Drop
	case "fail":
		return nil, errFail
	case "panic":
		panic(errFail)
	default:
		return append(values, v), nil
	}
}

var errFail = errors.New("fail")

// joined are the results so far, the values of each put together.
func joined(end *collect[[]string]) (results []string) {
	for _, values := range end.payloads() {
		results = append(results, strings.Join(values, " "))
	}
	return results
}

// No member is lost, whatever the reason is for which a result goes out, and
// each result begins anew.
func TestReduce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]string]{}
		r := onLane(t, strategies.Reduce(3, time.Minute, empty, gather, end,
			strategies.MaxSize(10, bytesOf), strategies.Name("reduce")))
		a, b := r.assign(0), r.assign(1)
		r.feed(a, "a", "bad", "b", "skip", "c", "d")
		r.feed(b, "e")
		wait(time.Minute)
		r.feed(b, "12345", "12345", "123456", "12345", "0123456789012")
		r.feed(a, "f")
		r.FlushAtBound(a)
		synctest.Wait()
		r.feed(a, "g")
		r.drain(b) // nothing of it is there
		r.feed(a, "h")
		r.finish()
		want := []string{"a b c", "d e", "12345 12345", "123456", "12345", "0123456789012", "f", "g h"}
		if diff := cmp.Diff(want, joined(end)); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		wantCounts := map[string]int64{
			"flushed by count": 1, "flushed by time": 1, "flushed by size": 4, "flushed at the bound": 1, "flushed by a drain": 1,
		}
		if diff := cmp.Diff(wantCounts, r.Counts("reduce")); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		end.ackAll()
		for _, e := range []arroyo.Epoch{a, b} {
			if n := r.Unsettled(e); n != 0 {
				t.Errorf("%d messages of %v are not settled", n, e)
			}
		}
	})
}

// A verdict on the result is one on its members; those that were rejected or
// dropped have theirs.
func TestReduceVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]string]{}
		r := onLane(t, strategies.Reduce(3, time.Minute, empty, gather, end))
		r.feed(r.assign(0), "a", "bad", "b", "skip", "c")
		end.got.all()[0].Reject(errors.New("bad result"))
		want := []string{"0/1 rejected", "0/3 acked", "0/0 rejected", "0/2 rejected", "0/4 rejected"}
		if diff := cmp.Diff(want, r.verdicts()); diff != "" {
			t.Errorf("verdicts (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

func TestReduceFailures(t *testing.T) {
	for _, v := range []string{"fail", "panic"} {
		t.Run(v, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := &collect[[]string]{}
				r := onLane(t, strategies.Reduce(3, time.Minute, empty, gather, end, strategies.Name("reduce")))
				r.feed(r.assign(0), "a", v, "c")
				err := r.Finish()
				var step *arroyo.StepError
				if !errors.Is(err, errFail) || !errors.As(err, &step) || step.Step != "reduce" || step.Offset != 1 {
					t.Errorf("the run ended with %v", err)
				}
				if len(end.payloads()) != 0 || len(r.verdicts()) != 0 {
					t.Errorf("results %v, verdicts %v: want none", joined(end), r.verdicts())
				}
			})
		})
	}
}

// The message whose attempt failed is added once.
func TestReduceRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		end := &collect[[]string]{}
		r := onLane(t, strategies.Reduce(2, time.Hour, empty, func(values []string, m arroyo.Message[*kgo.Record]) ([]string, error) {
			if calls++; calls%3 != 0 {
				return nil, errFail
			}
			return append(values, value(m)), nil
		}, end, strategies.Retry(strategies.RetryPolicy{})))
		r.feed(r.assign(0), "a", "b")
		wait(time.Minute)
		if diff := cmp.Diff([]string{"a b"}, joined(end)); diff != "" || calls != 6 {
			t.Errorf("after %d calls, want 6: results (-want +got):\n%s", calls, diff)
		}
		r.finish()
	})
}

// What was folded in stays in, unless all of it is of epochs that are over.
func TestReduceAndFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[[]string]{}
		r := onLane(t, strategies.Reduce(10, time.Minute, empty, gather, end))
		a, b := r.assign(0), r.assign(1)
		r.feed(a, "a")
		r.feed(b, "b")
		r.Fence(a)
		wait(time.Minute)
		if diff := cmp.Diff([]string{"a b"}, joined(end)); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		r.feed(b, "c")
		r.Fence(b)
		wait(time.Minute)
		if n := len(end.payloads()); n != 1 {
			t.Errorf("%d results, want 1: all members of the second are fenced", n)
		}
		a = r.assign(0)
		r.feed(a, "d")
		wait(time.Minute)
		if diff := cmp.Diff([]string{"a b", "d"}, joined(end)); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// tally is an accumulator: it counts words, is ready after the word "now", and
// has nothing to say of no words.
type tally struct {
	words int
	now   bool
}

func newTally() *tally { return new(tally) }

func (t *tally) Add(_ context.Context, m arroyo.Message[*kgo.Record]) error {
	if _, err := gather(nil, m); err != nil {
		return err
	}
	t.words += len(strings.Fields(value(m)))
	t.now = strings.HasSuffix(value(m), "now")
	return nil
}

func (t *tally) Ready() bool { return t.now }

func (t *tally) Result() (string, bool) {
	if t.words > 90 {
		panic(errFail)
	}
	return fmt.Sprintf("%d words", t.words), t.words > 0
}

func TestAccumulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[string]{}
		r := onLane(t, strategies.Accumulate(time.Minute, newTally, end, strategies.Name("tally")))
		a := r.assign(0)
		r.feed(a, "a", "bad", "b and c now", "", "skip")
		expect := func(results []string, verdicts ...string) {
			t.Helper()
			if diff := cmp.Diff(results, end.payloads()); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(verdicts, r.verdicts()); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		}
		expect([]string{"5 words"}, "0/1 rejected", "0/4 acked")
		wait(time.Minute) // nothing to say: what was added is done with
		expect([]string{"5 words"}, "0/1 rejected", "0/4 acked", "0/3 acked")
		r.feed(a, "d e")
		r.drain(a)
		expect([]string{"5 words", "2 words"}, "0/1 rejected", "0/4 acked", "0/3 acked")
		end.ackAll()
		expect([]string{"5 words", "2 words"}, "0/1 rejected", "0/4 acked", "0/3 acked", "0/0 acked", "0/2 acked", "0/5 acked")
		want := map[string]int64{"flushed when ready": 1, "flushed by time": 1, "flushed by a drain": 1}
		if diff := cmp.Diff(want, r.Counts("tally")); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		r.finish()
	})
}

// stubborn is an accumulator that takes a message at the third attempt.
type stubborn struct {
	calls int
	tally
}

func (s *stubborn) Add(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
	if s.calls++; s.calls%3 != 0 {
		return errFail
	}
	return s.tally.Add(ctx, m)
}

func newStubborn() *stubborn { return new(stubborn) }

func TestAccumulateRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &collect[string]{}
		r := onLane(t, strategies.Accumulate(time.Hour, newStubborn, end, strategies.Retry(strategies.RetryPolicy{})))
		r.feed(r.assign(0), "a", "b now")
		wait(time.Minute)
		if diff := cmp.Diff([]string{"3 words"}, end.payloads()); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		if n := r.Counts("Accumulate(strategies_test.newStubborn)")["retries"]; n != 4 {
			t.Errorf("%d retries, want 4", n)
		}
		r.finish()
	})
}

func TestAccumulateFailures(t *testing.T) {
	for v, offset := range map[string]int64{"fail": 1, "panic": 1, strings.Repeat("w ", 99) + "now": 0} {
		t.Run(v[:4], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := onLane(t, strategies.Accumulate(time.Minute, newTally, &collect[string]{}, strategies.Name("tally")))
				r.feed(r.assign(0), "a", v)
				err := r.Finish()
				var step *arroyo.StepError
				if !errors.Is(err, errFail) || !errors.As(err, &step) || step.Step != "tally" || step.Offset != offset {
					t.Errorf("the run ended with %v", err)
				}
				if len(r.verdicts()) != 0 {
					t.Errorf("verdicts %v, want none", r.verdicts())
				}
			})
		})
	}
}

func TestFoldConstructorsPanic(t *testing.T) {
	end := &collect[[]string]{}
	text := &collect[string]{}
	expectPanics(t, map[string]func(){
		"Reduce: a size of 0 is not positive":   func() { strategies.Reduce(0, time.Second, empty, gather, end) },
		"Reduce: a wait of 0s is not positive":  func() { strategies.Reduce(1, 0, empty, gather, end) },
		"Reduce: the function for the initial":  func() { strategies.Reduce(1, time.Second, nil, gather, end) },
		"Reduce: the function that adds":        func() { strategies.Reduce[*kgo.Record](1, time.Second, empty, nil, end) },
		"Reduce: the next step":                 func() { strategies.Reduce(1, time.Second, empty, gather, nil) },
		"Accumulate: a wait of -1ns":            func() { strategies.Accumulate(-1, newTally, text) },
		"Accumulate: the function that begins":  func() { strategies.Accumulate[*tally](time.Second, nil, text) },
		"Accumulate: the next step":             func() { strategies.Accumulate(time.Second, newTally, nil) },
		"Unfold: the function":                  func() { strategies.Unfold[string](nil, text) },
		"Unfold: the next step":                 func() { strategies.Unfold(words, nil) },
		"Unbatch: the next step":                func() { strategies.Unbatch[string](nil) },
		"Interval: a length of -1s is negative": func() { strategies.Interval(-time.Second, &collect[strategies.Span]{}) },
		"Interval: the next step":               func() { strategies.Interval(0, nil) },
		"Healthcheck: the path is empty":        func() { strategies.Healthcheck("", time.Second, text) },
		"Healthcheck: an interval of 0s":        func() { strategies.Healthcheck("x", 0, text) },
		"Healthcheck: the next step":            func() { strategies.Healthcheck[string]("x", time.Second, nil) },
		"Plain: the function is nil":            func() { strategies.Plain[int, int](nil) },
	})
}
