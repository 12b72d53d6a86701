package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

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
	order orders
}

// orders is what order messages come out in.
type orders int

const (
	ordered orders = iota
	orderedPerKey
	unordered
)

// composition is pieces one behind the other, and perhaps an end.
type composition struct {
	pieces []piece
	end    *ending // nil: what the suite gives
	t      *testing.T
	mixes  bool
	order  orders
	rng    *rand.Rand
	dir    string
}

func (c *composition) wait() time.Duration {
	return []time.Duration{time.Millisecond, time.Second, time.Hour}[c.rng.IntN(3)]
}

func pieces() []piece {
	return append(asyncPieces(), []piece{
		{name: "by key", async: true, order: orderedPerKey, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			// Not one that the suite holds up: a key is one of all partitions.
			return strategies.RunTaskByKey(2+c.rng.IntN(20), strategies.RecordKey, sleepySquare, next)
		}},
		{name: "unordered", async: true, order: unordered, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTaskUnordered(2+c.rng.IntN(20), c.slow(), next)
		}},
		{name: "slow parallel", async: true, build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.RunTaskInParallel(2+c.rng.IntN(20), c.slow(), next)
		}},
		{name: "route", build: func(c *composition, next arroyo.Strategy[int]) arroyo.Strategy[int] {
			return strategies.Route(func(m arroyo.Message[int]) string { return []string{"on", "end", "on", "nowhere"}[m.Payload&3] },
				strategies.Branches[int]{"on": next, "end": c.branchEnd()})
		}},
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
				strategies.MaxSize(1+c.rng.IntN(200), func(m arroyo.Message[int]) int { return m.Payload & 127 }))
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

// ending is a step that ends a composition.
type ending struct {
	name  string
	build func(c *composition) arroyo.Strategy[int]
}

func endings() []ending {
	return []ending{
		{"produce", func(c *composition) arroyo.Strategy[int] {
			return c.produce(time.Duration(c.rng.IntN(20)) * time.Millisecond)
		}},
		{"for each", func(*composition) arroyo.Strategy[int] { return strategies.ForEach(asEnd(sleepySquare)) }},
		{"for each batch", func(c *composition) arroyo.Strategy[int] {
			return strategies.ForEachBatch(1+c.rng.IntN(30), c.wait(), func(ctx context.Context, rows []arroyo.Message[int]) error {
				rows[0].Reject(errors.New("the first"))
				return pass(ctx, time.Millisecond)
			})
		}},
	}
}

// branchEnd is what a branch ends in. It is done with its messages at once: the
// suite cannot tell one that waits for acks from one that holds messages back.
func (c *composition) branchEnd() arroyo.Strategy[int] {
	switch c.rng.IntN(3) {
	case 0:
		return strategies.Noop[int]()
	case 1:
		return strategies.ForEach(asEnd(square))
	}
	return c.produce(0)
}

func asEnd(task func(context.Context, arroyo.Message[int]) (int, error)) func(context.Context, arroyo.Message[int]) error {
	return func(ctx context.Context, m arroyo.Message[int]) error {
		_, err := task(ctx, m)
		return err
	}
}

// produce is a Produce to brokers that take a while to ack, and refuse some
// records for what they are. It checks that those of a partition come in order,
// if they should.
func (c *composition) produce(takes time.Duration) arroyo.Strategy[int] {
	brokers := produceFunc(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
		ack := func() { promise(r, nil) }
		if len(r.Value) == 0 {
			ack = func() { promise(r, kerr.MessageTooLarge) }
		}
		if takes == 0 {
			ack()
			return
		}
		time.AfterFunc(takes, ack)
	})
	last := make(map[arroyo.Epoch]int64)
	return strategies.Produce(brokers, func(ctx context.Context, m arroyo.Message[int]) (*kgo.Record, error) {
		for e := range m.Epochs() {
			first, _, _ := m.Offsets(e)
			if c.order == ordered && first < last[e] {
				c.t.Errorf("offset %d of %v was produced after offset %d", first, e, last[e])
			}
			last[e] = first
		}
		if m.Payload%29 == 11 {
			return strategies.Outgoing(m, "out", nil), nil
		}
		if m.Payload%17 == 5 {
			return nil, arroyo.Drop
		}
		return strategies.Outgoing(m, "out", fmt.Append(nil, m.Payload)), nil
	})
}

func compose(t *testing.T, seed uint64) *composition {
	c := &composition{rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir()}
	all := pieces()
	for range 2 + c.rng.IntN(4) {
		p := all[c.rng.IntN(len(all))]
		c.pieces = append(c.pieces, p)
		if p.order == orderedPerKey && c.mixes {
			p.order = unordered // a key is that of the first of several
		}
		c.order = max(c.order, p.order)
		c.mixes = c.mixes || p.mixes
	}
	if all := endings(); c.rng.IntN(3) == 0 {
		c.end = &all[c.rng.IntN(len(all))]
	}
	return c
}

// slow returns a task that is as slow as the suite wants it; that cannot be if
// a message may stand for several partitions.
func (c *composition) slow() func(context.Context, arroyo.Message[int]) (int, error) {
	if c.mixes {
		return sleepySquare
	}
	return slowSquare
}

// build makes the same steps each time.
func (c *composition) build(seed uint64) func(arroyo.Strategy[int]) arroyo.Strategy[int] {
	return func(next arroyo.Strategy[int]) arroyo.Strategy[int] {
		c.rng = rand.New(rand.NewPCG(seed, 1))
		if c.end != nil {
			next = c.end.build(c)
		}
		for i := len(c.pieces) - 1; i >= 0; i-- {
			next = c.pieces[i].build(c, next)
		}
		return next
	}
}

func (c *composition) options() []strategytest.Option {
	opts := []strategytest.Option{strategytest.Capacity(4000)}
	if c.end != nil {
		opts = append(opts, strategytest.Ends())
	}
	for _, p := range c.pieces {
		if p.async {
			opts = append(opts, strategytest.Capacity(12_000))
		}
		if p.folds {
			opts = append(opts, strategytest.Folds())
		}
	}
	switch c.order {
	case orderedPerKey:
		opts = append(opts, strategytest.PerKey(func(i int) string { return fmt.Sprintf("k%d", i%5) }))
	case unordered:
		opts = append(opts, strategytest.Unordered())
	}
	return opts
}

func (c *composition) String() string {
	names := make([]string, len(c.pieces))
	for i, p := range c.pieces {
		names[i] = p.name
	}
	if c.end != nil {
		names = append(names, c.end.name)
	}
	return strings.Join(names, ", ")
}

// ofIntervals puts an Interval, which needs records, in front of a composition.
func ofIntervals(build func(arroyo.Strategy[int]) arroyo.Strategy[int]) func(arroyo.Strategy[int]) arroyo.Strategy[*kgo.Record] {
	begin := func(_ context.Context, m arroyo.Message[strategies.Span]) (int, error) {
		return int(m.Payload.First), nil
	}
	return func(next arroyo.Strategy[int]) arroyo.Strategy[*kgo.Record] {
		return strategies.Interval(2*time.Second, strategies.RunTask(begin, build(next)))
	}
}

// Two hundred random compositions of the steps keep the contract.
func TestConformanceOfCompositions(t *testing.T) {
	for seed := range uint64(200) {
		c := compose(t, seed)
		t.Run(fmt.Sprintf("%d %v", seed, c), func(t *testing.T) {
			c.t = t
			if seed%5 == 0 {
				strategytest.Conformance(t, ofIntervals(c.build(seed)), record, append(c.options(), strategytest.Keeps(1))...)
				return
			}
			strategytest.Conformance(t, c.build(seed), number, c.options()...)
		})
	}
}
