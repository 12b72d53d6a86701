package arroyo

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
)

// Step is the account of one step of a pipeline: what logs, errors and Status
// call it, and what went through it. Whoever writes a strategy makes one when
// the strategy is made, and calls its Enter before the strategy calls user
// code.
type Step struct {
	name string
	path atomic.Pointer[string] // with the branches that lead to it

	messages atomic.Int64
	working  atomic.Int64 // goroutines of the step's own

	mu     sync.Mutex
	counts map[string]int64
}

// NewStep returns the account of a step with this name.
func NewStep(name string) *Step { return &Step{name: name} }

// Enter says that the step works from here on, on so many messages, and
// returns the lane that it works on. It may be called from any goroutine. It is
// called per Submit, not per message.
func (s *Step) Enter(ctx context.Context, messages int) *Lane {
	l := LaneOf(ctx)
	if s.path.Load() == nil {
		s.register(ctx, l)
	}
	if messages > 0 {
		s.messages.Add(int64(messages))
	}
	l.whole().step.Store(s)
	return l
}

// Working adds n to the number of goroutines of the step's own that call user
// code. While there are any and the lane itself waits, it is this step that
// Status and errors name. A step with such goroutines, which it starts with
// Lane.Go, calls it with 1 and -1 around what they do. It may be called from
// any goroutine.
func (s *Step) Working(n int) { s.working.Add(int64(n)) }

// Count adds n to a number that Status shows of the step: how many batches
// were full, say. It is called per batch, not per message.
func (s *Step) Count(what string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[string]int64)
	}
	s.counts[what] += int64(n)
}

// Name returns the step's name, behind those of the branches that lead to it,
// as in "route/payment/insert".
func (s *Step) Name() string {
	if path := s.path.Load(); path != nil {
		return *path
	}
	return s.name
}

// register finds the step's path, the first time that it is used, and makes
// the lane know of it.
func (s *Step) register(ctx context.Context, l *Lane) {
	path := s.name
	if branch, ok := ctx.Value(branchKey{}).(string); ok {
		path = branch + "/" + s.name
	}
	if s.path.CompareAndSwap(nil, &path) {
		for l = l.whole(); l.parent != nil; l = l.parent {
		}
		l.mu.Lock()
		l.steps = append(l.steps, s)
		l.mu.Unlock()
	}
}

// status returns the counts.
func (s *Step) status() (messages int64, counts map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages.Load(), maps.Clone(s.counts)
}

type branchKey struct{}

// WithBranch returns a context for the steps behind one branch of a step that
// has several: their names begin with the branch's, as in
// "route/payment/insert". So do those of what they run later, through the lane
// that LaneOf returns for the context.
func WithBranch(ctx context.Context, name string) context.Context {
	if branch, ok := ctx.Value(branchKey{}).(string); ok {
		name = branch + "/" + name
	}
	if l, ok := ctx.Value(laneKey{}).(*Lane); ok {
		return branchContext{ctx, name, l.view(name)}
	}
	return context.WithValue(ctx, branchKey{}, name)
}

// branchContext is a context with a branch, and its view of the lane, in it.
type branchContext struct {
	context.Context
	path any // a string
	lane *Lane
}

func (c branchContext) Value(key any) any {
	switch key.(type) {
	case branchKey:
		return c.path
	case laneKey:
		return c.lane
	}
	return c.Context.Value(key)
}
