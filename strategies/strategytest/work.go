package strategytest

import (
	"context"
	"sync/atomic"

	"github.com/arroyo-go/arroyo"
)

// Work makes the function of an asynchronous step take as long as Conformance
// wants: a test calls it in the function, which is called with one message at a
// time, and returns its error. So the suite sees that a message that takes long
// holds up none of another partition. It returns the context's cause if that
// ends meanwhile, and nil at once if it is called elsewhere.
func Work[T any](ctx context.Context, m arroyo.Message[T]) error {
	for r := range m.Records() {
		if r.Context == nil {
			continue
		}
		if g, ok := r.Context.Value(gateKey{}).(*gate); ok {
			if err := g.wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

type gateKey struct{}

// gate is what Work waits for.
type gate struct {
	open    chan struct{}
	waiting atomic.Int32
}

func (g *gate) wait(ctx context.Context) error {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
