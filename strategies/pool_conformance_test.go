package strategies_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// slowSquare is square, as slow as the suite wants it.
func slowSquare(ctx context.Context, m arroyo.Message[int]) (int, error) {
	if err := strategytest.Work(ctx, m); err != nil {
		return 0, err
	}
	return square(ctx, m)
}

// sleepySquare is square and takes its own time, now and then.
func sleepySquare(ctx context.Context, m arroyo.Message[int]) (int, error) {
	if m.Payload%5 == 3 {
		if err := pass(ctx, time.Duration(m.Payload*7919%13)*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return square(ctx, m)
}

func keyOfInt(m arroyo.Message[int]) string { return string(m.Record().Key) }

// The steps that work on many messages at once keep the contract, alone.
func TestConformanceOfPools(t *testing.T) {
	perKey := strategytest.PerKey(func(i int) string { return fmt.Sprintf("k%d", i%5) })
	for name, task := range map[string]func(context.Context, arroyo.Message[int]) (int, error){"slow": slowSquare, "sleepy": sleepySquare} {
		for _, n := range []int{2, 3, 50} {
			t.Run(fmt.Sprintf("%s %d", name, n), func(t *testing.T) {
				t.Run("RunTaskInParallel", func(t *testing.T) {
					strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
						return strategies.RunTaskInParallel(n, task, next)
					}, number)
				})
				t.Run("RunTaskByKey", func(t *testing.T) {
					strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
						return strategies.RunTaskByKey(n, keyOfInt, task, next)
					}, number, perKey)
				})
				t.Run("RunTaskUnordered", func(t *testing.T) {
					strategytest.Conformance(t, func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
						return strategies.RunTaskUnordered(n, task, next)
					}, number, strategytest.Unordered())
				})
			})
		}
	}
}

// asyncPieces are the pieces of compositions that have goroutines.
func asyncPieces() []piece {
	return []piece{
		{name: "parallel", async: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTaskInParallel(1+c.rng.IntN(20), square, next)
		}},
		{name: "sleepy parallel", async: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTaskInParallel(2+c.rng.IntN(20), sleepySquare, next)
		}},
		{name: "queue", async: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Queue(1+c.rng.IntN(200), next)
		}},
	}
}
