package strategies_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// seeing is an accumulator that looks at messages.
type seeing struct {
	see func(arroyo.Message[*kgo.Record])
}

func (s *seeing) Add(_ context.Context, m arroyo.Message[*kgo.Record]) error {
	s.see(m)
	return nil
}
func (s *seeing) Ready() bool         { return false }
func (s *seeing) Result() (int, bool) { return 0, true }

// I3: when an epoch ends in the middle of a Submit, no further message of it is
// handed to the function; those of others are.
func TestI3EpochEndsInTheMiddleOfASubmit(t *testing.T) {
	type see = func(arroyo.Message[*kgo.Record])
	end := func() arroyo.Strategy[int] { return strategies.Noop[int]() }
	for name, build := range map[string]func(see) arroyo.Strategy[*kgo.Record]{
		"RunTask": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (int, error) { see(m); return 0, nil }, end())
		},
		"Filter": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool { see(m); return false }, strategies.Noop[*kgo.Record]())
		},
		"ForEach": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error { see(m); return nil })
		},
		"Unfold": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.Unfold(func(_ context.Context, m arroyo.Message[*kgo.Record]) ([]int, error) { see(m); return nil, nil }, end())
		},
		"Reduce": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.Reduce(9, time.Hour, zero, func(n int, m arroyo.Message[*kgo.Record]) (int, error) { see(m); return n, nil }, end())
		},
		"Accumulate": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.Accumulate(time.Hour, func() *seeing { return &seeing{see} }, end())
		},
		"MaxSize": func(see see) arroyo.Strategy[*kgo.Record] {
			return strategies.Batch(9, time.Hour, strategies.Unbatch(strategies.Noop[*kgo.Record]()),
				strategies.MaxSize(9, func(m arroyo.Message[*kgo.Record]) int { see(m); return 1 }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var (
					a, b arroyo.Epoch
					r    *laneRig
					seen []string
				)
				r = onLane(t, strategies.Batch(4, time.Hour, strategies.Unbatch(build(func(m arroyo.Message[*kgo.Record]) {
					if seen = append(seen, value(m)); len(seen) == 1 {
						r.Fence(a)
					}
				}))))
				a, b = r.assign(0), r.assign(1)
				r.feed(a, "a1", "a2")
				r.feed(b, "b1")
				r.feed(a, "a3")
				if diff := cmp.Diff([]string{"a1", "b1"}, seen); diff != "" {
					t.Errorf("the function saw (-want +got):\n%s", diff)
				}
				r.finish()
			})
		})
	}
}
