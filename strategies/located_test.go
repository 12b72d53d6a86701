package strategies_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// grumpy is an error that panics when one asks what it is.
type grumpy struct{}

func (grumpy) Error() string   { return "grumpy" }
func (grumpy) Is(error) bool   { panic("do not ask") }
func (grumpy) Unwrap() []error { return nil }

// What a function does at a message is located there, whatever was dropped in
// front of it in the same Submit, and what is in front of it is done.
func TestFailuresAreLocated(t *testing.T) {
	const dropped, fails = 9, 12 // one Submit has both
	failures := map[string]func() error{
		"panic":             func() error { panic("oops") },
		"error":             func() error { return errors.New("oops") },
		"error that panics": func() error { return grumpy{} },
	}
	type text = func(context.Context, records) (string, error)
	end := strategies.Noop[string]()
	name := strategies.Name("work")
	steps := map[string]struct {
		build func(text) arroyo.Strategy[*kgo.Record]
		acks  bool // each message once it is done with it, itself
	}{
		"RunTask": {func(f text) arroyo.Strategy[*kgo.Record] { return strategies.RunTask(f, end, name) }, false},
		"ForEach": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(ctx context.Context, m records) error {
				_, err := f(ctx, m)
				return err
			}, name)
		}, true},
		"ForEach with Timeout": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.ForEach(func(ctx context.Context, m records) error {
				_, err := f(ctx, m)
				return err
			}, name, strategies.Timeout(time.Minute))
		}, true},
		"Unfold": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.Unfold(func(ctx context.Context, m records) ([]string, error) {
				s, err := f(ctx, m)
				return []string{s}, err
			}, end, name)
		}, false},
		"RunTaskInParallel": {func(f text) arroyo.Strategy[*kgo.Record] { return strategies.RunTaskInParallel(1, f, end, name) }, false},
		"RunTaskUnordered":  {func(f text) arroyo.Strategy[*kgo.Record] { return strategies.RunTaskUnordered(1, f, end, name) }, false},
		"RunTaskByKey": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskByKey(1, func(records) string { return "" }, f, end, name)
		}, false},
		"Reduce": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.Reduce(100, time.Hour, empty, func(all []string, m records) ([]string, error) {
				s, err := f(context.Background(), m)
				return append(all, s), err
			}, strategies.Noop[[]string](), name)
		}, false},
		"Produce": {func(f text) arroyo.Strategy[*kgo.Record] {
			return strategies.Produce(new(acks), func(ctx context.Context, m records) (*kgo.Record, error) {
				_, err := f(ctx, m)
				return strategies.Outgoing(m, "out", nil), err
			}, name)
		}, false},
	}
	for kind, step := range steps {
		for how, fail := range failures {
			t.Run(kind+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := arroyo.NewRig(step.build(func(_ context.Context, m records) (string, error) {
						switch m.Payload.Offset {
						case dropped:
							return "", arroyo.Drop
						case fails:
							return "", fail()
						}
						return "", nil
					}))
					e := r.Assign(arroyo.Partition{Topic: "events"})
					feed := make([]*kgo.Record, 40)
					for i := range feed {
						feed[i] = &kgo.Record{Topic: "events", Offset: int64(i)}
					}
					r.Feed(e, feed...)
					<-r.Done()
					at, ok := errors.AsType[*arroyo.StepError](r.Err())
					if !ok || at.Step != "work" || at.Offset != fails {
						t.Fatalf("the run ended with %v, want a failure in work at offset %d", r.Err(), fails)
					}
					if _, panicked := errors.AsType[*arroyo.PanicError](at.Err); panicked != (how != "error") {
						t.Errorf("the error is %v", at.Err)
					}
					if done, _ := r.Watermark(e); step.acks && done != fails {
						t.Errorf("the watermark is %d, not %d", done, fails)
					}
				})
			})
		}
	}
}
