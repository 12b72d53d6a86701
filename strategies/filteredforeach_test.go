package strategies_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// many are so many records that a lane submits 64 and more at once: where a
// Filter and the ForEach behind it do their work together.
const many = 1000

func TestFilterAndForEach(t *testing.T) {
	for name, keep := range map[string]func(int) bool{
		"all":         func(int) bool { return true },
		"none":        func(int) bool { return false },
		"every other": func(n int) bool { return n%2 == 0 },
		"a few":       func(n int) bool { return n%97 == 0 },
		"all but one": func(n int) bool { return n != 500 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				number := func(m records) int {
					n, err := strconv.Atoi(value(m))
					if err != nil {
						t.Error(err)
					}
					return n
				}
				var got, want []int
				b := newBench(t, 1, strategies.Filter(func(m records) bool { return keep(number(m)) },
					strategies.ForEach(func(_ context.Context, m records) error {
						if got = append(got, number(m)); number(m)%10 == 0 {
							return arroyo.Drop
						}
						return nil
					}, strategies.Name("handle")), strategies.Name("wanted")))
				b.put(0, numbered(many)...)
				b.settle(many)
				for n := range many {
					if keep(n) {
						want = append(want, n)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the ForEach was given (-want +got):\n%s", diff)
				}
				through := make(map[string]int64)
				for _, s := range b.processor.Status().Steps {
					through[s.Name] = s.Messages
				}
				if through["wanted"] != many || through["handle"] != int64(len(want)) {
					t.Errorf("Status says that %v went through the steps, and not %d and %d", through, many, len(want))
				}
				if err := b.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What fails where a Filter and a ForEach work together is located in the step
// that it happened in, and what is in front of it is done.
func TestFilterAndForEachFail(t *testing.T) {
	const fails = 777
	nothing := func() error { return nil }
	for name, test := range map[string]struct {
		keep, each func() error // at the message that fails
		step       string
		panics     bool
	}{
		"keep panics":                 {func() error { panic("oops") }, nothing, "wanted", true},
		"the function panics":         {nothing, func() error { panic("oops") }, "handle", true},
		"the function fails":          {nothing, func() error { return errors.New("oops") }, "handle", false},
		"the function's error panics": {nothing, func() error { return grumpy{} }, "handle", true},
	} {
		for before, dropped := range map[string]bool{"behind a kept message": false, "behind a dropped one": true} {
			t.Run(name+" "+before, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := arroyo.NewRig(strategies.Filter(func(m records) bool {
						if m.Payload.Offset == fails {
							_ = test.keep()
						}
						return !dropped || m.Payload.Offset != fails-1
					}, strategies.ForEach(func(_ context.Context, m records) error {
						if m.Payload.Offset == fails {
							return test.each()
						}
						return nil
					}, strategies.Name("handle")), strategies.Name("wanted")))
					e := r.Assign(arroyo.Partition{Topic: "events"})
					r.Feed(e, plain(many)...)
					<-r.Done()
					at, ok := errors.AsType[*arroyo.StepError](r.Err())
					if !ok || at.Step != test.step || at.Offset != fails {
						t.Fatalf("the run ended with %v, want a failure in %s at offset %d", r.Err(), test.step, fails)
					}
					if _, panicked := errors.AsType[*arroyo.PanicError](at.Err); panicked != test.panics {
						t.Errorf("the error is %v", at.Err)
					}
					if done, _ := r.Watermark(e); done != fails {
						t.Errorf("the watermark is %d, not %d", done, fails)
					}
				})
			})
		}
	}
}

// I3: when an epoch ends while a Filter and a ForEach work together, neither
// function is called with a further message.
func TestI3EpochEndsInFilterAndForEach(t *testing.T) {
	const last = 777
	synctest.Test(t, func(t *testing.T) {
		var (
			r          *arroyo.Rig
			e          arroyo.Epoch
			kept, each []int64
		)
		r = arroyo.NewRig(strategies.Filter(func(m records) bool {
			kept = append(kept, m.Payload.Offset)
			return true
		}, strategies.ForEach(func(_ context.Context, m records) error {
			if each = append(each, m.Payload.Offset); m.Payload.Offset == last {
				r.Fence(e)
			}
			return nil
		})))
		e = r.Assign(arroyo.Partition{Topic: "events"})
		r.Feed(e, plain(many)...)
		synctest.Wait()
		if len(kept) != last+1 || len(each) != last+1 {
			t.Errorf("the functions were called with %d and %d messages, and not with the first %d", len(kept), len(each), last+1)
		}
		if err := r.Finish(); err != nil {
			t.Error(err)
		}
	})
}

// plain returns records that have nothing but an offset.
func plain(n int) []*kgo.Record {
	all := make([]*kgo.Record, n)
	for i := range all {
		all[i] = &kgo.Record{Topic: "events", Offset: int64(i)}
	}
	return all
}
