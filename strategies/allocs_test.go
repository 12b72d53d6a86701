//go:build !race

package strategies_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// inLane calls f once, as a step of a pipeline is called, with n messages.
func inLane(t *testing.T, n int, f func(context.Context, []records)) {
	t.Helper()
	all := make([]*kgo.Record, n)
	for i := range all {
		all[i] = &kgo.Record{Offset: int64(i)}
	}
	step := &oneCall{f: f}
	rig := arroyo.NewRig(step)
	e := rig.Assign(arroyo.Partition{Topic: "events"})
	step.msgs = rig.Messages(e, all...)
	rig.Feed(e, &kgo.Record{Offset: int64(n)})
	rig.Wait()
	if err := rig.Finish(); err != nil {
		t.Fatal(err)
	}
	if !step.called {
		t.Error("the step was not called")
	}
}

type oneCall struct {
	msgs   []records
	f      func(context.Context, []records)
	called bool
}

func (s *oneCall) Submit(ctx context.Context, msgs []records) error {
	s.called = true
	s.f(ctx, s.msgs)
	arroyo.AckAll(msgs)
	return nil
}

func (s *oneCall) Flush(context.Context) error { return nil }
func (s *oneCall) Close(context.Context) error { return nil }

// nothing is a step that does nothing, and so allocates nothing.
type nothing[T any] struct{}

func (nothing[T]) Submit(context.Context, []arroyo.Message[T]) error { return nil }
func (nothing[T]) Flush(context.Context) error                       { return nil }
func (nothing[T]) Close(context.Context) error                       { return nil }

// In steady state these steps allocate nothing for a message. A batch, however
// large it is, has its slice, and three more for the message that stands for it.
func TestAllocations(t *testing.T) {
	const n, aBatch = 640, 4
	offset := func(_ context.Context, m records) (int64, error) { return m.Payload.Offset, nil }
	isEven := func(m records) bool { return m.Payload.Offset%2 == 0 }
	done := func(context.Context, records) error { return nil }
	doneAll := func(context.Context, []records) error { return nil }
	type counted struct {
		name string
		step arroyo.Strategy[*kgo.Record]
		most int // for n messages
	}
	steps := []counted{
		{"RunTask", strategies.RunTask(offset, nothing[int64]{}), 0},
		{"Filter", strategies.Filter(isEven, nothing[*kgo.Record]{}), 0},
		{"ForEach", strategies.ForEach(done), 0},
		{"Noop", strategies.Noop[*kgo.Record](), 0},
	}
	for _, size := range []int{10, n} {
		most := aBatch * n / size
		steps = append(steps,
			counted{fmt.Sprint("Batch of ", size), strategies.Batch(size, time.Hour, nothing[[]records]{}), most},
			counted{fmt.Sprint("Batch and Unbatch of ", size), strategies.Batch(size, time.Hour, strategies.Unbatch(nothing[*kgo.Record]{})), most},
			counted{fmt.Sprint("ForEachBatch of ", size), strategies.ForEachBatch(size, time.Hour, doneAll), most})
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			inLane(t, n, func(ctx context.Context, msgs []records) {
				got := testing.AllocsPerRun(100, func() {
					if err := tt.step.Submit(ctx, msgs); err != nil {
						t.Error(err)
					}
				})
				if got > float64(tt.most) {
					t.Errorf("%v allocations for %d messages, want no more than %v", got, n, tt.most)
				}
			})
		})
	}
}
