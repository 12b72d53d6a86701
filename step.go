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
	s.messages.Add(int64(messages))
	l.step.Store(s)
	return l
}

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
		for l.parent != nil {
			l = l.parent
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
// "route/payment/insert".
func WithBranch(ctx context.Context, name string) context.Context {
	if branch, ok := ctx.Value(branchKey{}).(string); ok {
		name = branch + "/" + name
	}
	return context.WithValue(ctx, branchKey{}, name)
}
