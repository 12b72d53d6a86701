package strategies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Branches are the ways that Route chooses from, by their names. Each is a
// pipeline of its own.
type Branches[T any] map[string]arroyo.Strategy[T]

// Fallback is the name of the branch that takes the messages whose route has no
// branch. Without it they are invalid: rejected, never dropped.
const Fallback = "fallback"

// Route sends each message to the branch that route names for it. The branches
// are pipelines that take the same type; one that goes on with a type of its
// own begins with a RunTask, to decode the message say. Each branch gets its
// messages in the order of their partition; between branches there is none.
//
// A branch that blocks holds up the others, because all work on one goroutine:
// put a Queue at its beginning to give it one of its own. Steps are called by
// their branch, as in "Route(orders.kind)/payment/insert", in errors, logs and
// Status.
//
// Route panics if a strategy is in two branches: it has one upstream.
func Route[T any](route func(arroyo.Message[T]) string, branches Branches[T], opts ...Option) arroyo.Strategy[T] {
	require("Route", "the function is nil", route != nil)
	s := newRouter("Route", configure("Route", route, opts), branches)
	s.pick = func(m *arroyo.Message[T]) *branch[T] { return s.branches[route(*m)] }
	s.why = func(m arroyo.Message[T]) error { return fmt.Errorf("route %q has no branch", route(m)) }
	return s
}

// RouteByHeader is Route by the value of a header of the message's record; if
// it has several of that key, of the last. A record without the header goes to
// the branch "", if there is one.
func RouteByHeader[T any](header string, branches Branches[T], opts ...Option) arroyo.Strategy[T] {
	c := configure(fmt.Sprintf("RouteByHeader(%s)", header), nil, opts)
	s := newRouter("RouteByHeader", c, branches)
	s.pick = func(m *arroyo.Message[T]) *branch[T] {
		value, _ := lastHeader(m.Record(), header)
		return s.branches[string(value)]
	}
	s.why = func(m arroyo.Message[T]) error {
		value, there := lastHeader(m.Record(), header)
		if !there {
			return fmt.Errorf("there is no header %q", header)
		}
		return fmt.Errorf("header %q is %q, which has no branch", header, value)
	}
	return s
}

func lastHeader(r *kgo.Record, key string) (value []byte, there bool) {
	if r == nil {
		return nil, false
	}
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if h := &r.Headers[i]; h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}

// RouteByKey is Route by the key of the message's record. A null key is the
// empty one.
func RouteByKey[T any](branches Branches[T], opts ...Option) arroyo.Strategy[T] {
	s := newRouter("RouteByKey", configure("RouteByKey", nil, opts), branches)
	key := func(m *arroyo.Message[T]) []byte {
		if r := m.Record(); r != nil {
			return r.Key
		}
		return nil
	}
	s.pick = func(m *arroyo.Message[T]) *branch[T] { return s.branches[string(key(m))] }
	s.why = func(m arroyo.Message[T]) error { return fmt.Errorf("key %q has no branch", key(&m)) }
	return s
}

type router[T any] struct {
	*config
	pick     func(*arroyo.Message[T]) *branch[T] // nil: the message's route has none
	why      func(arroyo.Message[T]) error       // says that it has none
	branches map[string]*branch[T]
	ordered  []*branch[T]
	fallback *branch[T] // nil: there is none
}

type branch[T any] struct {
	path  string
	first arroyo.Strategy[T]
	msgs  []arroyo.Message[T] // of the Submit in progress; kept for its memory
}

func newRouter[T any](kind string, c *config, branches Branches[T]) *router[T] {
	require(kind, "there are no branches", len(branches) > 0)
	s := &router[T]{config: c, branches: make(map[string]*branch[T], len(branches))}
	seen := make(map[uintptr]string)
	for _, name := range slices.Sorted(maps.Keys(branches)) {
		first := branches[name]
		require(kind, fmt.Sprintf("branch %q is nil", name), first != nil)
		if p, ok := identity(first); ok {
			other, twice := seen[p]
			require(kind, fmt.Sprintf("branches %q and %q are the same strategy, which takes one upstream: make two", other, name), !twice)
			seen[p] = name
		}
		b := &branch[T]{path: c.name + "/" + name, first: first}
		s.branches[name] = b
		s.ordered = append(s.ordered, b)
	}
	s.fallback = s.branches[Fallback]
	return s
}

// identity returns what is the same of two strategies if they are the same one.
// Those without state have none.
func identity(s any) (p uintptr, ok bool) {
	v := reflect.ValueOf(s)
	if v.Kind() != reflect.Pointer || v.Type().Elem().Size() == 0 {
		return 0, false
	}
	return v.Pointer(), true
}

func (s *router[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	s.step.Enter(ctx, len(msgs))
	only, err := s.sort(msgs)
	if err != nil {
		return err
	}
	if only != nil { // all of them go the same way
		return only.first.Submit(arroyo.WithBranch(ctx, only.path), msgs)
	}
	for _, b := range s.ordered {
		if len(b.msgs) == 0 || err != nil {
			continue
		}
		err = b.first.Submit(arroyo.WithBranch(ctx, b.path), b.msgs)
	}
	for _, b := range s.ordered {
		clear(b.msgs)
		b.msgs = b.msgs[:0]
	}
	return err
}

// sort gives the messages to their branches, unless all of them are of only
// one.
func (s *router[T]) sort(msgs []arroyo.Message[T]) (only *branch[T], err error) {
	at := 0
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[at], v)
		}
	}()
	for i := range msgs {
		at = i
		m := &msgs[i]
		var b *branch[T]
		if !m.Fenced() {
			if b = s.pick(m); b == nil {
				b = s.fallback
			}
			if b == nil {
				m.Reject(arroyo.NewStepError(s.step.Name(), *m, arroyo.Invalid(s.why(*m))))
			}
		}
		if i == 0 {
			only = b
		}
		if only != nil && b != only {
			only.msgs = append(only.msgs, msgs[:i]...)
			only = nil
		}
		if only == nil && b != nil {
			b.msgs = append(b.msgs, *m)
		}
	}
	return only, nil
}

// Flush flushes all branches.
func (s *router[T]) Flush(ctx context.Context) error {
	var errs []error
	for _, b := range s.ordered {
		errs = append(errs, b.first.Flush(arroyo.WithBranch(ctx, b.path)))
	}
	return join(errs)
}

// Close closes all branches, also if one of them fails or panics.
func (s *router[T]) Close(ctx context.Context) error {
	var errs []error
	for _, b := range s.ordered {
		errs = append(errs, b.close(arroyo.WithBranch(ctx, b.path)))
	}
	return join(errs)
}

func (b *branch[T]) close(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &arroyo.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return b.first.Close(ctx)
}

// join joins errors; a single one stays as it is.
func join(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
