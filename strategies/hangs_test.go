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

// What hangs behind a goroutine of a step is named, while the run goes on and
// when it ends, whatever the lane itself did last or waits in.
func TestWhatHangsIsNamed(t *testing.T) {
	for name, step := range map[string]struct {
		build func(hang func()) arroyo.Strategy[*kgo.Record]
		named string
	}{
		"Queue": {func(hang func()) arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(100, strategies.ForEach(func(context.Context, records) error {
				hang()
				return nil
			}, strategies.Name("hangs")))
		}, "route/h/hangs"},
		"a full Queue": {func(hang func()) arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(1, strategies.ForEach(func(context.Context, records) error {
				hang()
				return nil
			}, strategies.Name("hangs")))
		}, "route/h/hangs"},
		"RunTaskInParallel": {func(hang func()) arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskInParallel(3, func(context.Context, records) (string, error) {
				hang()
				return "", nil
			}, strategies.Noop[string](), strategies.Name("hangs"))
		}, "route/h/hangs"},
		"Queue and RunTaskUnordered": {func(hang func()) arroyo.Strategy[*kgo.Record] {
			return strategies.Queue(100, strategies.RunTaskUnordered(3, func(context.Context, records) (string, error) {
				hang()
				return "", nil
			}, strategies.Noop[string](), strategies.Name("hangs")))
		}, "route/h/hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				b := newBench(t, 1, strategies.Route(value, strategies.Branches[*kgo.Record]{
					"h": step.build(func() { <-release }),
					"f": strategies.ForEach(func(context.Context, records) error { return nil }, strategies.Name("fast")),
				}, strategies.Name("route")))
				b.put(0, "h", "h", "h", "f")
				expect := func(when string) {
					time.Sleep(time.Second)
					if got := b.processor.Status().Partitions[0].Step; got != step.named {
						t.Errorf("%s, Status says that the oldest record is in %q, want %q", when, got, step.named)
					}
				}
				expect("in the run")
				stopped := make(chan error)
				go func() { stopped <- b.stop() }()
				expect("at the end")
				time.Sleep(20 * time.Second) // past the deadline of the drain
				err := <-stopped
				if left, ok := errors.AsType[*arroyo.AbandonedError](err); !ok || left.Step != step.named {
					t.Errorf("Run: %v, want an AbandonedError that names %q", err, step.named)
				}
				close(release)
				synctest.Wait()
			})
		})
	}
}
