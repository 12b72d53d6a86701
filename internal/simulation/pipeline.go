package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// pipelinePlan is a composition of steps, and how user code behaves in it.
type pipelinePlan struct {
	stages  []string // outermost first
	end     string
	size    int           // of batches
	wait    time.Duration // of batches
	workers int

	pace  time.Duration // of each call of user code
	slow  int           // one record in so many takes slowTime; 0: none
	takes time.Duration // such a one
	deaf  bool          // ... whatever its context says
	fail  int           // one call in so many fails; 0: none
	panik bool          // ... by a panic
	retry bool          // ... and is tried again

	rejectAt string // where invalid records are found: first, end
}

func (p pipelinePlan) String() string {
	return fmt.Sprintf("%s → %s (batches of %d or %v, %d workers; user code takes %v, 1 in %d takes %v (deaf %t), 1 in %d fails (panics %t, retry %t); rejects at %s)",
		strings.Join(p.stages, " → "), p.end, p.size, p.wait, p.workers, p.pace, p.slow, p.takes, p.deaf, p.fail, p.panik, p.retry, p.rejectAt)
}

func drawPipeline(rng *rand.Rand, calm bool) pipelinePlan {
	p := pipelinePlan{
		end:      pick(rng, "ForEach", "ForEach", "ForEachBatch", "ForEachBatch", "Produce"),
		size:     pick(rng, 1, 3, 10, 100),
		wait:     between(rng, 10*time.Millisecond, 3*time.Second),
		workers:  pick(rng, 1, 2, 5, 20),
		rejectAt: pick(rng, "first", "end"),
		pace:     pick(rng, 0, 0, between(rng, 0, 5*time.Millisecond), between(rng, 0, 50*time.Millisecond)),
	}
	for range rng.IntN(4) {
		p.stages = append(p.stages, pick(rng, stages...))
	}
	if !calm {
		if rng.IntN(3) == 0 {
			p.slow, p.takes, p.deaf = pick(rng, 30, 200), between(rng, time.Second, 40*time.Second), rng.IntN(2) == 0
		}
		if rng.IntN(4) == 0 {
			p.fail, p.panik, p.retry = pick(rng, 30, 100, 400), rng.IntN(3) == 0, rng.IntN(2) == 0
		}
	}
	return p
}

// mayLeaveGaps reports whether a message may be left to the next owner at a drain
// although others behind it are done: one that a step was trying again, if a
// step before or behind it works out of order.
func (p pipelinePlan) mayLeaveGaps() bool {
	return p.retry && p.fail > 0 && (slices.Contains(p.stages, "RunTaskByKey") || slices.Contains(p.stages, "RunTaskUnordered"))
}

// What the records of a seed are like is the same for all members: what is
// invalid for one is so for all.
const (
	invalidEvery = 13
	dropEvery    = 7
)

func chance(id string, salt string, oneIn int) bool {
	if oneIn == 0 {
		return false
	}
	h := fnv.New64a()
	h.Write([]byte(salt))
	h.Write([]byte(id))
	return h.Sum64()%uint64(oneIn) == 0
}

func isInvalid(id string) bool { return chance(id, "invalid", invalidEvery) }
func isDropped(id string) bool { return chance(id, "drop", dropEvery) && !isInvalid(id) }

var errBroken = errors.New("the world is broken")

// work is what user code does with a record, in the step that works.
func (c *crew) work(ctx context.Context, r *kgo.Record, salt string) error {
	id := string(r.Value)
	c.pause(ctx, c.plan.pace, false)
	if chance(id, c.member.plan.name+salt, c.plan.slow) {
		c.pause(ctx, c.plan.takes, c.plan.deaf)
	}
	if n := c.member.calls.Add(1); c.plan.fail > 0 && n%int64(c.plan.fail) == 0 && !c.member.world.calm.Load() {
		if c.plan.panik {
			panic(errBroken)
		}
		return errBroken
	}
	return nil
}

func (c *crew) pause(ctx context.Context, d time.Duration, deaf bool) {
	if d == 0 || c.member.world.calm.Load() {
		return
	}
	if deaf {
		ctx = context.Background()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// stages are the steps in the middle: each takes and hands on records, so that
// they compose in any order.
var stages = []string{"RunTask", "Filter", "Batch+Unbatch", "Unfold", "RunTaskInParallel", "RunTaskByKey", "RunTaskUnordered"}

type records = arroyo.Strategy[*kgo.Record]

func (c *crew) build() records {
	p := c.plan
	var next records
	switch p.end {
	case "follow":
		return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
			c.life.see(factOf(factGiven, m))
			c.pause(ctx, p.pace, false)
			return nil
		})
	case "ForEach":
		next = strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
			if isInvalid(string(m.Payload.Value)) {
				return poison(m.Payload)
			}
			if err := c.work(ctx, m.Payload, "end"); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.done(m)
			return nil
		}, c.options()...)
	case "ForEachBatch":
		next = strategies.ForEachBatch(p.size, p.wait, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
			var valid []arroyo.Message[*kgo.Record]
			for _, row := range rows {
				if isInvalid(string(row.Payload.Value)) {
					row.Reject(poison(row.Payload))
					continue
				}
				if err := c.work(ctx, row.Payload, "end"); err != nil {
					return err
				}
				valid = append(valid, row)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			for _, row := range valid {
				c.done(row)
			}
			return nil
		}, c.options()...)
	case "Produce":
		outputs := &outputs{life: c.life}
		next = strategies.Produce(outputs, func(ctx context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
			if isInvalid(string(m.Payload.Value)) {
				return nil, poison(m.Payload)
			}
			if err := c.work(ctx, m.Payload, "end"); err != nil {
				return nil, err
			}
			r := strategies.Outgoing(m, out, []byte(string(m.Payload.Value)))
			outputs.of.Store(r, factOf(factDone, m))
			return r, nil
		}, c.options()...)
	}
	for i := len(p.stages) - 1; i >= 0; i-- {
		next = c.stage(p.stages[i], i, next)
	}
	// The first step sees everything, and notes what is handed out.
	return strategies.RunTask(func(ctx context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
		c.handed(m)
		if p.rejectAt == "first" && isInvalid(string(m.Payload.Value)) {
			return nil, poison(m.Payload)
		}
		return m.Payload, nil
	}, next)
}

func poison(r *kgo.Record) error { return arroyo.Invalid(fmt.Errorf("poison %s", r.Value)) }

func (c *crew) options() []strategies.Option {
	if !c.plan.retry {
		return nil
	}
	return []strategies.Option{strategies.Retry(strategies.RetryPolicy{Attempts: 5, Min: 10 * time.Millisecond, Max: time.Second})}
}

func (c *crew) stage(kind string, i int, next records) records {
	salt := fmt.Sprint(i)
	task := func(ctx context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
		return m.Payload, c.work(ctx, m.Payload, salt)
	}
	switch kind {
	case "RunTask":
		return strategies.RunTask(task, next, c.options()...)
	case "Filter":
		return strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool {
			if !isDropped(string(m.Payload.Value)) {
				return true
			}
			c.dropped(m)
			return false
		}, next)
	case "Batch+Unbatch":
		return strategies.Batch(c.plan.size, c.plan.wait, strategies.Unbatch(next))
	case "RunTaskInParallel":
		return strategies.RunTaskInParallel(c.plan.workers, task, next, c.options()...)
	case "RunTaskByKey":
		return strategies.RunTaskByKey(c.plan.workers, func(m arroyo.Message[*kgo.Record]) string { return string(m.Payload.Value[:1]) }, task, next, c.options()...)
	case "RunTaskUnordered":
		return strategies.RunTaskUnordered(c.plan.workers, task, next, c.options()...)
	case "Unfold":
		return strategies.Unfold(func(_ context.Context, m arroyo.Message[*kgo.Record]) ([]*kgo.Record, error) {
			if !isDropped(string(m.Payload.Value)) {
				return []*kgo.Record{m.Payload}, nil
			}
			c.dropped(m)
			return nil, nil
		}, next)
	}
	panic("no stage " + kind)
}
