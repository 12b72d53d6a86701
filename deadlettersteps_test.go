package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Short names for what the pipelines below are made of.
type (
	record   = *kgo.Record
	message  = arroyo.Message[record]
	strategy = arroyo.Strategy[record]
)

var errPoison = errors.New("poison")

// rejecting are pipelines that reject the bad records, each in another place,
// and write the others into the ledger.
var rejecting = map[string]func(l *ledger, bad func(record) bool) strategy{
	"the last step": func(l *ledger, bad func(record) bool) strategy { return addOrReject(l, bad) },
	"a task before a filter and a batch": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTask(taskOf(bad), strategies.Filter(all, addRows(l)))
	},
	"a task behind a filter": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Filter(all, strategies.RunTask(taskOf(bad), addAll(l)))
	},
	"rows of a batch": func(l *ledger, bad func(record) bool) strategy {
		return strategies.ForEachBatch(7, time.Second, rejectRows(l, bad))
	},
	"a task behind a batch": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Batch(7, time.Second, rejectMembers(l, bad))
	},
	"a task behind a batch that was taken apart": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Batch(7, time.Second, strategies.Unbatch(addOrReject(l, bad)))
	},
	"a task behind parallel batches": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Batch(7, time.Second, strategies.RunTaskInParallel(3, func(ctx context.Context, m arroyo.BatchOf[record]) (int, error) {
			time.Sleep(3 * time.Millisecond)
			return 0, rejectRows(l, bad)(ctx, m.Payload)
		}, strategies.Noop[int]()))
	},
	"a task in parallel": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTaskInParallel(4, slowTaskOf(bad), addAll(l))
	},
	"a task by key": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTaskByKey(4, func(m message) int64 { return m.Payload.Offset % 5 }, slowTaskOf(bad), addAll(l))
	},
	"a task without order": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTaskUnordered(4, slowTaskOf(bad), addRows(l))
	},
	"behind a task in parallel": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTaskInParallel(4, slowTaskOf(func(record) bool { return false }), addOrReject(l, bad))
	},
	"a task that gives up": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTask(func(_ context.Context, m message) (record, error) {
			if bad(m.Payload) {
				return nil, errPoison // any error, but for the policy
			}
			return m.Payload, nil
		}, addAll(l), strategies.Retry(strategies.RetryPolicy{Attempts: 3, Min: time.Millisecond, Max: time.Millisecond, GiveUp: arroyo.Invalid}))
	},
	"what unfolds": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Unfold(func(_ context.Context, m message) ([]record, error) {
			if bad(m.Payload) {
				return nil, arroyo.Invalid(errPoison)
			}
			return []record{nil, m.Payload, nil}, nil
		}, strategies.Filter(func(m message) bool { return m.Payload != nil }, addAll(l)))
	},
	"one of what was unfolded": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Unfold(func(_ context.Context, m message) ([]record, error) {
			return []record{nil, m.Payload, nil}, nil
		}, strategies.ForEach(func(ctx context.Context, m message) error {
			if m.Payload == nil {
				return nil
			}
			return addOne(l, bad)(ctx, m)
		}))
	},
	"a task before a reduction": func(l *ledger, bad func(record) bool) strategy {
		return strategies.RunTask(taskOf(bad), reduced(func(record) bool { return false }, addMembers(l)))
	},
	"a reduction": func(l *ledger, bad func(record) bool) strategy { return reduced(bad, addMembers(l)) },
	"behind a reduction": func(l *ledger, bad func(record) bool) strategy {
		return reduced(func(record) bool { return false }, rejectMembers(l, bad))
	},
	"an accumulator": func(l *ledger, bad func(record) bool) strategy {
		return strategies.Accumulate(time.Second, func() *pile { return &pile{bad: bad} }, addMembers(l))
	},
	"a helper goroutine": func(l *ledger, bad func(record) bool) strategy {
		return hook{Forward: noop(), submit: func(ctx context.Context, msgs []message) error {
			msgs = slices.Clone(msgs)
			arroyo.LaneOf(ctx).Go(func(ctx context.Context) error {
				time.Sleep(100 * time.Millisecond)
				for _, m := range msgs {
					if bad(m.Payload) {
						m.Reject(errPoison)
						continue
					}
					l.add("m", m.Payload)
					m.Ack()
				}
				return nil
			})
			return nil
		}}
	},
}

func all(message) bool { return true }

func taskOf(bad func(record) bool) func(context.Context, message) (record, error) {
	return func(_ context.Context, m message) (record, error) {
		if bad(m.Payload) {
			return nil, fmt.Errorf("decode: %w", arroyo.Invalid(errPoison))
		}
		return m.Payload, nil
	}
}

// slowTaskOf takes so long that results are not ready in order.
func slowTaskOf(bad func(record) bool) func(context.Context, message) (record, error) {
	task := taskOf(bad)
	return func(ctx context.Context, m message) (record, error) {
		time.Sleep(time.Duration(1+m.Payload.Offset*7%5) * time.Millisecond)
		return task(ctx, m)
	}
}

func addOne(l *ledger, bad func(record) bool) func(context.Context, message) error {
	return func(_ context.Context, m message) error {
		if bad(m.Payload) {
			return arroyo.Invalid(errPoison)
		}
		l.add("m", m.Payload)
		return nil
	}
}

func addOrReject(l *ledger, bad func(record) bool) strategy {
	return strategies.ForEach(addOne(l, bad))
}

func addAll(l *ledger) strategy { return addOrReject(l, func(record) bool { return false }) }

func rejectRows(l *ledger, bad func(record) bool) func(context.Context, []message) error {
	return func(_ context.Context, rows []message) error {
		for _, row := range rows {
			if bad(row.Payload) {
				row.Reject(errPoison)
				continue
			}
			l.add("m", row.Payload)
		}
		return nil
	}
}

func addRows(l *ledger) strategy {
	return strategies.ForEachBatch(7, time.Second, rejectRows(l, func(record) bool { return false }))
}

func rejectMembers(l *ledger, bad func(record) bool) arroyo.Strategy[[]message] {
	return strategies.ForEach(func(ctx context.Context, m arroyo.BatchOf[record]) error {
		return rejectRows(l, bad)(ctx, m.Payload)
	})
}

func addMembers(l *ledger) arroyo.Strategy[[]message] {
	return rejectMembers(l, func(record) bool { return false })
}

// reduced reduces messages to a list of them.
func reduced(bad func(record) bool, next arroyo.Strategy[[]message]) strategy {
	return strategies.Reduce(7, time.Second, func() []message { return nil }, func(members []message, m message) ([]message, error) {
		if bad(m.Payload) {
			return nil, arroyo.Invalid(errPoison)
		}
		return append(members, m), nil
	}, next)
}

// pile is an accumulator of messages.
type pile struct {
	bad     func(record) bool
	members []message
}

func (p *pile) Add(_ context.Context, m message) error {
	if p.bad(m.Payload) {
		return arroyo.Invalid(errPoison)
	}
	p.members = append(p.members, m)
	return nil
}

func (p *pile) Ready() bool { return len(p.members) == 7 }

func (p *pile) Result() ([]message, bool) { return p.members, len(p.members) > 0 }
