package arroyo

import "context"

// epochKey finds, in an epoch's context, its *progress.
type epochKey struct{}

// Draining returns a channel that is closed when a drain begins that concerns
// who works under ctx. Under the context of a Submit that is the drain of the
// messages' epoch. Under a lane's context it is the next drain, or the loss, of
// any of the lane's epochs: get the channel first, then look (see
// Message.ReturnIfDraining and Message.Fenced), then wait. It is nil where there
// is no lane.
//
// A step that waits to try again gives up then: what it has not done can be
// returned, and its partition's next owner begins there.
func Draining(ctx context.Context) <-chan struct{} {
	if p, ok := ctx.Value(epochKey{}).(*progress); ok {
		return p.drains
	}
	if l, ok := ctx.Value(laneKey{}).(*Lane); ok {
		return l.nextDrain()
	}
	return nil
}

type flushKey struct{}

// FlushOf returns which epochs a Flush under ctx is about. A step need hand on
// nothing that it holds back of others, and does not wait for their work.
func FlushOf(ctx context.Context) func(Epoch) bool {
	if f, ok := ctx.Value(flushKey{}).(*flushSet); ok && f.some != nil {
		return func(e Epoch) bool { return f.some[e] }
	}
	return func(Epoch) bool { return true }
}

// flushSet is what a Flush is about.
type flushSet struct {
	some  map[Epoch]bool // nil: all
	bound bool           // see AtBound
}

// add returns a set that also has the epochs of these, or all if there are
// none.
func (f *flushSet) add(of []*progress) *flushSet {
	if len(of) == 0 || f != nil && f.some == nil {
		return &flushSet{}
	}
	if f == nil {
		f = &flushSet{some: make(map[Epoch]bool, len(of))}
	}
	f.bound = false
	for _, p := range of {
		f.some[p.state.Epoch] = true
	}
	return f
}

func (f *flushSet) in(ctx context.Context) context.Context {
	if f == nil || f.some == nil && !f.bound {
		return ctx
	}
	return context.WithValue(ctx, flushKey{}, f)
}
