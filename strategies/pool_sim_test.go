package strategies_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// TestPoolSimulation plays seeded schedules of feeding, drains, losses, flushes,
// slow, hung and failing tasks and a slow next step that holds messages back,
// and checks what a pool promises: order, one fate for each message, flushes
// behind what was submitted before, bounds, and clean drains.
func TestPoolSimulation(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 20
	}
	for name := range pools {
		t.Run(name, func(t *testing.T) {
			submitted, handedOn, flushes := 0, 0, 0
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					s := newPoolSim(t, name, uint64(seed))
					s.play()
					submitted += len(s.order)
					handedOn += s.handedOn
					flushes += s.passed
				})
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d messages submitted, %d handed on, %d flushes", submitted, handedOn, flushes)
			if handedOn < 100*seeds || flushes < 4*seeds {
				t.Error("the schedules do next to nothing")
			}
		})
	}
}

type poolSim struct {
	t    *testing.T
	name string
	rng  *rand.Rand
	n    int
	rig  *arroyo.Rig

	epochs [3]arroyo.Epoch
	fed    [3]int64 // the next offset to feed

	mu       sync.Mutex
	running  map[arroyo.Epoch]int
	over     map[arroyo.Epoch]bool // drained or fenced, and released
	at       map[arroyo.Epoch]map[int64]*simMessage
	order    []*simMessage // by submission
	flushes  map[context.Context][][]*simMessage
	passed   int
	inside   bool
	closed   int
	held     []arroyo.Message[simResult]
	lastSeq  map[string]int
	handedOn int
}

// simMessage is what became of a message that was submitted.
type simMessage struct {
	m        records
	seq      int
	begun    bool
	handedOn bool
}

type simResult struct{ *simMessage }

func newPoolSim(t *testing.T, name string, seed uint64) *poolSim {
	s := &poolSim{
		t: t, name: name,
		rng:     rand.New(rand.NewPCG(seed, 7)),
		running: make(map[arroyo.Epoch]int),
		over:    make(map[arroyo.Epoch]bool),
		at:      make(map[arroyo.Epoch]map[int64]*simMessage),
		flushes: make(map[context.Context][][]*simMessage),
		lastSeq: make(map[string]int),
	}
	s.n = 1 + s.rng.IntN(5)
	pool := simPools[name](s.n, s.task, (*simSink)(s))
	s.rig = arroyo.NewRig(front{Forward: arroyo.ForwardTo(pool), submit: s.submitted, flush: s.flushed})
	return s
}

// submitted is called before the pool's Submit.
func (s *poolSim) submitted(msgs []records) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range msgs {
		e := m.Epoch()
		if s.at[e] == nil {
			s.at[e] = make(map[int64]*simMessage)
		}
		sm := &simMessage{m: m, seq: len(s.order)}
		s.at[e][m.Payload.Offset] = sm
		s.order = append(s.order, sm)
	}
}

// flushed is called before the pool's Flush.
func (s *poolSim) flushed(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := arroyo.FlushOf(ctx)
	var before []*simMessage
	for _, sm := range s.order {
		if of(sm.m.Epoch()) && !sm.handedOn {
			before = append(before, sm)
		}
	}
	s.flushes[ctx] = append(s.flushes[ctx], before)
}

// kind says what a record's task does.
func kind(r *kgo.Record) int64 {
	if k := (r.Offset*7 + int64(r.Partition)*3) % 97; k != 3 || r.Offset%3 == 0 {
		return k
	}
	return 1
}

func (s *poolSim) task(ctx context.Context, m records) (simResult, error) {
	e := m.Epoch()
	s.mu.Lock()
	if s.over[e] && !m.Fenced() {
		s.t.Errorf("a task of %s begins though it was drained", e)
	}
	s.running[e]++
	total := 0
	for _, n := range s.running {
		total += n
	}
	if total > s.n {
		s.t.Errorf("%d tasks at once, more than %d", total, s.n)
	}
	sm := s.at[e][m.Payload.Offset]
	sm.begun = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[e]--
	}()
	switch kind(m.Payload) {
	case 1:
		time.Sleep(30 * time.Millisecond)
	case 2:
		if err := pass(ctx, 2*time.Second); err != nil {
			return simResult{}, err
		}
	case 3:
		time.Sleep(15 * time.Second) // ignores its context
	case 4:
		return simResult{}, arroyo.Drop
	case 5:
		return simResult{}, arroyo.Invalid(errDown)
	}
	return simResult{sm}, nil
}

func (s *poolSim) play() {
	for i := range s.epochs {
		s.epochs[i] = s.rig.Assign(arroyo.Partition{Topic: "events", Number: int32(i)})
	}
	for range 40 {
		i := s.rng.IntN(3)
		switch s.rng.IntN(12) {
		case 0:
			s.drain(i)
		case 1:
			s.rig.Fence(s.epochs[i])
			s.comeBack(i)
		case 2:
			s.rig.FlushAtBound()
		case 3:
			time.Sleep(time.Duration(s.rng.IntN(5000)) * time.Millisecond)
		default:
			s.feed(i, 1+s.rng.IntN(60))
		}
		time.Sleep(time.Duration(s.rng.IntN(100)) * time.Millisecond)
		if err := s.rig.Err(); err != nil {
			s.t.Fatalf("the lane ended with %v", err)
		}
	}
	if s.rng.IntN(4) == 0 {
		s.rig.Abandon()
		<-s.rig.Done()
	} else if err := s.rig.Finish(); err != nil {
		s.t.Errorf("the end: %v", err)
	} else {
		for i, e := range s.epochs {
			s.expectDrained(i, e)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != 1 {
		s.t.Errorf("the next step was closed %d times", s.closed)
	}
}

func (s *poolSim) feed(i, n int) {
	rs := make([]*kgo.Record, n)
	for j := range rs {
		rs[j] = &kgo.Record{Topic: "events", Partition: int32(i), Offset: s.fed[i], Key: fmt.Append(nil, s.fed[i]%5)}
		s.fed[i]++
	}
	s.rig.Feed(s.epochs[i], rs...)
}

// drain gives a partition up in order, and gets it back.
func (s *poolSim) drain(i int) {
	e := s.epochs[i]
	s.rig.Drain(e)
	for began := time.Now(); s.rig.Unsettled(e) > 0; time.Sleep(100 * time.Millisecond) {
		// A hung task takes 15 s, and all workers may have one and then the
		// next.
		if time.Since(began) > time.Minute {
			s.t.Fatalf("%s is not drained: %d unsettled", e, s.rig.Unsettled(e))
		}
	}
	s.expectDrained(i, e)
	s.mu.Lock()
	s.over[e] = true
	s.mu.Unlock()
	s.rig.Fence(e)
	s.comeBack(i)
}

func (s *poolSim) expectDrained(i int, e arroyo.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.running[e]; n != 0 {
		s.t.Errorf("%s is drained, and %d of its tasks go on", e, n)
	}
	for offset, sm := range s.at[e] {
		if !sm.m.Settled() {
			s.t.Errorf("%s offset %d is not settled", e, offset)
		}
		if w, _ := s.rig.Watermark(e); sm.begun && offset >= w {
			s.t.Errorf("%s: the next owner begins at %d, though %d was worked on", e, w, offset)
		}
	}
}

// comeBack assigns a partition again, from its watermark on.
func (s *poolSim) comeBack(i int) {
	if w, known := s.rig.Watermark(s.epochs[i]); known {
		s.fed[i] = w
	}
	s.epochs[i] = s.rig.Assign(arroyo.Partition{Topic: "events", Number: int32(i)})
}

// simSink is the step behind the pool. It holds messages back until it has a
// few, or is flushed.
type simSink poolSim

func (s *simSink) enter() (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside {
		s.t.Error("the next step is called while a call of it is in progress")
	}
	if s.closed > 0 {
		s.t.Error("the next step is called after its Close")
	}
	s.inside = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inside = false
	}
}

func (s *simSink) Submit(ctx context.Context, msgs []arroyo.Message[simResult]) error {
	defer s.enter()()
	s.mu.Lock()
	for _, m := range msgs {
		if err := arroyo.HandedOn(s.rig, m); err != nil {
			s.t.Error(err)
		}
		m.Payload.handedOn = true
		s.handedOn++
		var line string
		switch s.name {
		case "RunTaskInParallel":
			line = m.Epoch().String()
		case "RunTaskByKey":
			line = string(m.Record().Key)
		default:
			continue
		}
		if last, ok := s.lastSeq[line]; ok && m.Payload.seq <= last {
			s.t.Errorf("%s: submission %d is handed on behind %d", line, m.Payload.seq, last)
		}
		s.lastSeq[line] = m.Payload.seq
	}
	s.held = append(s.held, msgs...)
	full := len(s.held) > 20
	s.mu.Unlock()
	if full {
		return s.let(ctx, func(arroyo.Epoch) bool { return true })
	}
	return nil
}

// let acks what is held of some epochs, slowly.
func (s *simSink) let(ctx context.Context, of func(arroyo.Epoch) bool) error {
	s.mu.Lock()
	var kept, acked []arroyo.Message[simResult]
	for _, m := range s.held {
		if of(m.Epoch()) {
			acked = append(acked, m)
		} else {
			kept = append(kept, m)
		}
	}
	s.held = kept
	s.mu.Unlock()
	if err := pass(arroyo.LaneOf(ctx).Context(), 10*time.Millisecond); err != nil {
		return err
	}
	arroyo.AckAll(acked)
	return nil
}

func (s *simSink) Flush(ctx context.Context) error {
	defer s.enter()()
	s.mu.Lock()
	s.passed++
	before := s.flushes[ctx]
	if len(before) == 0 {
		s.t.Error("a flush that nobody made")
	} else {
		for _, sm := range before[0] {
			if !sm.handedOn && !sm.m.Settled() && !sm.m.Fenced() {
				s.t.Errorf("a flush of %s overtook offset %d", sm.m.Epoch(), sm.m.Payload.Offset)
			}
		}
		s.flushes[ctx] = before[1:]
	}
	s.mu.Unlock()
	return s.let(ctx, arroyo.FlushOf(ctx))
}

func (s *simSink) Close(ctx context.Context) error {
	defer s.enter()()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	if ctx.Err() != nil {
		return nil
	}
	for _, left := range s.flushes {
		if len(left) > 0 {
			s.t.Error("a flush was not passed on")
		}
	}
	if len(s.held) > 0 {
		s.t.Errorf("%d messages came behind the last flush", len(s.held))
	}
	return nil
}
