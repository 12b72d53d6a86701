package strategies_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// piece is a step, or a few, of which compositions are made.
type piece struct {
	name  string
	build func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int]
	mixes bool // messages of several partitions into one
	folds bool // and cannot take one out again
	async bool // has room for many, each of which may stand for several
}

// composition is pieces one behind the other.
type composition struct {
	pieces []piece
	rng    *rand.Rand
	dir    string
}

func (c *composition) wait() time.Duration {
	return []time.Duration{time.Millisecond, time.Second, time.Hour}[c.rng.IntN(3)]
}

func pieces() []piece {
	return append(asyncPieces(), []piece{
		{name: "task", build: func(_ *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTask(square, next)
		}},
		{name: "filter", build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			n := 2 + c.rng.IntN(4)
			return strategies.Filter(func(m arroyo.Message[int]) bool { return m.Payload%n > 0 }, next)
		}},
		{name: "unfold", build: func(_ *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Unfold(func(_ context.Context, m arroyo.Message[int]) ([]int, error) { return twice(m.Payload), nil }, next)
		}},
		{name: "batch", mixes: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Batch(1+c.rng.IntN(30), c.wait(), strategies.Unbatch(next))
		}},
		{name: "batch by size", mixes: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Batch(1+c.rng.IntN(30), c.wait(), strategies.Unbatch(next),
				strategies.MaxSize(1+c.rng.IntN(200), func(m arroyo.Message[int]) int { return m.Payload % 100 }))
		}},
		{name: "task of a batch", mixes: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Batch(1+c.rng.IntN(30), c.wait(), strategies.RunTask(
				func(_ context.Context, b arroyo.BatchOf[int]) (out []arroyo.Message[int], err error) {
					for _, m := range b.Payload {
						out = append(out, arroyo.With(m, m.Payload+1))
					}
					out[0].Ack()
					return out, nil
				}, strategies.Unbatch(next)))
		}},
		{name: "reduce", mixes: true, folds: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Reduce(1+c.rng.IntN(10), c.wait(), zero, add, next)
		}},
		{name: "accumulate", mixes: true, folds: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Accumulate(c.wait(), newSum, next)
		}},
		{name: "healthcheck", build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Healthcheck(filepath.Join(c.dir, "health"), time.Minute, next)
		}},
	}...)
}

func compose(seed uint64, dir string) *composition {
	c := &composition{rng: rand.New(rand.NewPCG(seed, 0)), dir: dir}
	all := pieces()
	for range 2 + c.rng.IntN(4) {
		c.pieces = append(c.pieces, all[c.rng.IntN(len(all))])
	}
	return c
}

// build makes the same steps each time.
func (c *composition) build(seed uint64) func(arroyo.Strategy[int]) arroyo.Strategy[int] {
	return func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
		c.rng = rand.New(rand.NewPCG(seed, 1))
		for i := len(c.pieces) - 1; i >= 0; i-- {
			next = c.pieces[i].build(c, next)
		}
		return next
	}
}

func (c *composition) options() []strategytest.Option {
	opts := []strategytest.Option{strategytest.Capacity(4000)}
	for _, p := range c.pieces {
		if p.async {
			opts = append(opts, strategytest.Capacity(12_000))
		}
		if p.folds {
			opts = append(opts, strategytest.Folds())
		}
	}
	return opts
}

func (c *composition) String() string {
	names := make([]string, len(c.pieces))
	for i, p := range c.pieces {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// Two hundred random compositions of the steps keep the contract.
func TestConformanceOfCompositions(t *testing.T) {
	for seed := range uint64(200) {
		c := compose(seed, t.TempDir())
		t.Run(fmt.Sprintf("%d %v", seed, c), func(t *testing.T) {
			strategytest.Conformance(t, c.build(seed), number, c.options()...)
		})
	}
}
