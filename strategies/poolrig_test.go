package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

type task = func(context.Context, records) (string, error)

// pools are the steps that work on many messages at once. Records' keys are
// their keys.
var pools = map[string]func(n int, f task, next arroyo.Strategy[string], opts ...strategies.Option) arroyo.Strategy[*kgo.Record]{
	"RunTaskInParallel": strategies.RunTaskInParallel[*kgo.Record, string],
	"RunTaskUnordered":  strategies.RunTaskUnordered[*kgo.Record, string],
	"RunTaskByKey": func(n int, f task, next arroyo.Strategy[string], opts ...strategies.Option) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTaskByKey(n, byRecordKey, f, next, opts...)
	},
}

func byRecordKey(m records) string { return string(m.Payload.Key) }

// forEachPool runs a test of each of them, in a bubble.
func forEachPool(t *testing.T, test func(t *testing.T, name string)) {
	for name := range pools {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, name) })
		})
	}
}

// pipe is a pipeline on a Rig: a step and what comes out of it.
type pipe struct {
	*arroyo.Rig
	*sink
	t       *testing.T
	offsets map[arroyo.Epoch]int64
}

func newPipe(t *testing.T, build func(next arroyo.Strategy[string]) arroyo.Strategy[*kgo.Record]) *pipe {
	p := &pipe{sink: &sink{}, t: t, offsets: make(map[arroyo.Epoch]int64)}
	p.Rig = arroyo.NewRig(build(p.sink))
	p.sink.rig = p.Rig
	p.Watch()
	return p
}

func (p *pipe) assign(number int32) arroyo.Epoch {
	return p.Assign(arroyo.Partition{Topic: "events", Number: number})
}

// feed queues records, written "value" or "key=value".
func (p *pipe) feed(e arroyo.Epoch, values ...string) {
	rs := make([]*kgo.Record, len(values))
	for i, v := range values {
		rs[i] = &kgo.Record{Topic: e.Topic, Partition: e.Number, Offset: p.offsets[e], Key: []byte(v), Value: []byte(v)}
		for j := range v {
			if v[j] == '=' {
				rs[i].Key, rs[i].Value = []byte(v[:j]), []byte(v[j+1:])
			}
		}
		p.offsets[e]++
	}
	p.Feed(e, rs...)
}

// finish ends the pipeline and expects no error.
func (p *pipe) finish() {
	p.t.Helper()
	if err := p.Finish(); err != nil {
		p.t.Errorf("the lane ended with %v", err)
	}
}

// verdicts returns the verdicts on an epoch's records as "value verdict", by
// offset.
func (p *pipe) verdicts(e arroyo.Epoch) []string {
	all := slices.DeleteFunc(p.Verdicts(), func(v arroyo.Verdict) bool { return v.Epoch != e })
	slices.SortFunc(all, func(a, b arroyo.Verdict) int { return int(a.Record.Offset - b.Record.Offset) })
	out := make([]string, len(all))
	for i, v := range all {
		out[i] = fmt.Sprintf("%s %s", v.Record.Value, v.Kind)
	}
	return out
}

// sink is the step behind the one under test: it takes notes and acks.
type sink struct {
	rig   *arroyo.Rig
	delay time.Duration // of a Submit

	mu     sync.Mutex
	inside bool
	seen   []string
	flushN int
	closed []error // of each Close, what its context's error was
	faults []error
}

func (s *sink) enter() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside {
		s.faults = append(s.faults, errors.New("the next step is called while a call of it is in progress"))
	}
	if len(s.closed) > 0 {
		s.faults = append(s.faults, errors.New("the next step is called after its Close"))
	}
	s.inside = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside = false
	}
}

func (s *sink) Submit(ctx context.Context, msgs []arroyo.Message[string]) error {
	defer s.enter()()
	if s.delay > 0 {
		if err := pass(ctx, s.delay); err != nil {
			return err
		}
	}
	for _, m := range msgs {
		err := arroyo.HandedOn(s.rig, m)
		s.mu.Lock()
		s.seen = append(s.seen, m.Payload)
		if err != nil && !m.Fenced() {
			s.faults = append(s.faults, err)
		}
		s.mu.Unlock()
		m.Ack()
	}
	return nil
}

func (s *sink) Flush(ctx context.Context) error {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushN++
	s.seen = append(s.seen, "|")
	return nil
}

func (s *sink) Close(ctx context.Context) error {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, ctx.Err())
	return nil
}

// all returns what was handed on, a flush as "|".
func (s *sink) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// expectClosed checks that the step was closed once, under a context that had
// ended or not, and that it was called as steps are to be called.
func (s *sink) expectClosed(t *testing.T, ended bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.closed) != 1 || (s.closed[0] != nil) != ended {
		t.Errorf("the next step was closed under contexts with %v, want one, ended: %v", s.closed, ended)
	}
	for _, err := range s.faults {
		t.Error(err)
	}
}

// simPools is pools for the simulation's results.
var simPools = map[string]func(n int, f func(context.Context, records) (simResult, error), next arroyo.Strategy[simResult]) arroyo.Strategy[*kgo.Record]{
	"RunTaskInParallel": func(n int, f func(context.Context, records) (simResult, error), next arroyo.Strategy[simResult]) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTaskInParallel(n, f, next)
	},
	"RunTaskUnordered": func(n int, f func(context.Context, records) (simResult, error), next arroyo.Strategy[simResult]) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTaskUnordered(n, f, next)
	},
	"RunTaskByKey": func(n int, f func(context.Context, records) (simResult, error), next arroyo.Strategy[simResult]) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTaskByKey(n, byRecordKey, f, next)
	},
}
