package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// The waits of batches: one that no check waits for, so that it shows what is
// left behind by a flush, and one that is over before anything else happens.
const (
	longWait  = 100 * time.Hour
	shortWait = 10 * time.Second
)

func number(i int) int { return i }

func record(i int) *kgo.Record { return &kgo.Record{Value: fmt.Append(nil, i)} }

func square(_ context.Context, m arroyo.Message[int]) (int, error) {
	switch {
	case m.Payload%11 == 7:
		return 0, arroyo.Drop
	case m.Payload%13 == 7:
		return 0, arroyo.Invalid(errors.New("seven"))
	}
	return m.Payload * m.Payload, nil
}

func twice(n int) []int {
	switch n % 4 {
	case 0:
		return nil
	case 1:
		return []int{n}
	}
	return []int{n, n + 1, n + 2}
}

// sum is an accumulator that is ready at a hundred, and has no result at an
// even sum.
type sum struct{ n int }

func newSum() *sum { return new(sum) }

func (s *sum) Add(_ context.Context, m arroyo.Message[int]) error {
	if m.Payload%17 == 3 {
		return arroyo.Drop
	}
	s.n += m.Payload
	return nil
}

func (s *sum) Ready() bool { return s.n >= 100 }

func (s *sum) Result() (int, bool) { return s.n, s.n%2 == 1 }

func add(n int, m arroyo.Message[int]) (int, error) {
	if m.Payload%19 == 3 {
		return 0, arroyo.Invalid(errors.New("three"))
	}
	return n + m.Payload, nil
}

func zero() int { return 0 }

func asMuch(m arroyo.Message[int]) int { return m.Payload }

// All steps keep the contract, alone.
func TestConformance(t *testing.T) {
	t.Run("RunTask", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTask(square, next)
		}, number)
	})
	t.Run("RunTask JSON", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[order]) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(strategies.JSON, next)
		}, func(i int) *kgo.Record { return &kgo.Record{Value: fmt.Appendf(nil, `{"amount":%d}`, i)} })
	})
	t.Run("Filter", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Filter(func(m arroyo.Message[int]) bool { return m.Payload%3 > 0 || m.Payload%4 > 0 }, next)
		}, number)
	})
	t.Run("Filter nothing through", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Filter(func(arroyo.Message[int]) bool { return false }, next)
		}, number)
	})
	t.Run("Unfold", func(t *testing.T) {
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Unfold(func(_ context.Context, m arroyo.Message[int]) ([]int, error) { return twice(m.Payload), nil }, next)
		}, number)
	})
	for _, wait := range []time.Duration{longWait, shortWait} {
		t.Run(fmt.Sprintf("Batch %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[[]arroyo.Message[int]]) arroyo.Strategy[int] {
				return strategies.Batch(10, wait, next)
			}, number, strategytest.Capacity(10))
		})
		t.Run(fmt.Sprintf("Batch by size %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[[]arroyo.Message[int]]) arroyo.Strategy[int] {
				return strategies.Batch(20, wait, next, strategies.MaxSize(100, asMuch))
			}, number, strategytest.Capacity(20))
		})
		t.Run(fmt.Sprintf("Batch and Unbatch %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
				return strategies.Batch(10, wait, strategies.Unbatch(next))
			}, number, strategytest.Capacity(10))
		})
		t.Run(fmt.Sprintf("Reduce %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
				return strategies.Reduce(10, wait, zero, add, next)
			}, number, strategytest.Capacity(15), strategytest.Folds())
		})
		t.Run(fmt.Sprintf("Reduce by size %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
				return strategies.Reduce(10, wait, zero, add, next, strategies.MaxSize(100, asMuch))
			}, number, strategytest.Capacity(15), strategytest.Folds())
		})
		t.Run(fmt.Sprintf("Accumulate %v", wait), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
				return strategies.Accumulate(wait, newSum, next)
			}, number, strategytest.Capacity(200), strategytest.Folds())
		})
	}
	for _, atLeast := range []time.Duration{0, time.Minute} {
		t.Run(fmt.Sprintf("Interval %v", atLeast), func(t *testing.T) {
			strategytest.Conformance(t, func(next arroyo.Strategy[strategies.Span]) arroyo.Strategy[*kgo.Record] {
				return strategies.Interval(atLeast, next)
			}, record, strategytest.Keeps(1))
		})
	}
	t.Run("Healthcheck", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "health")
		strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Healthcheck(file, time.Second, next)
		}, number)
	})
	t.Run("ForEach", func(t *testing.T) {
		strategytest.Conformance(t, func(arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.ForEach(func(ctx context.Context, m arroyo.Message[int]) error { return strategytest.Work(ctx, m) })
		}, number, strategytest.Ends())
	})
	t.Run("ForEachBatch", func(t *testing.T) {
		strategytest.Conformance(t, func(arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.ForEachBatch(10, longWait, func(_ context.Context, rows []arroyo.Message[int]) error {
				rows[0].Reject(errors.New("the first"))
				return nil
			})
		}, number, strategytest.Ends())
	})
	t.Run("Noop", func(t *testing.T) {
		strategytest.Conformance(t, func(arroyo.Strategy[int]) arroyo.Strategy[int] { return strategies.Noop[int]() },
			number, strategytest.Ends())
	})
}
