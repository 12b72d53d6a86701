package arroyo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Rig runs a pipeline as a Processor does, on the same lane and with the same
// watermarks, but without a consumer and a broker: what these would do to a
// pipeline, a Rig's methods do. It is for tests of strategies. Package
// strategytest stands on it and says whether a strategy keeps the contract;
// package memkafka is for tests that want a broker as well.
//
// The pipeline is a shared one: it may be assigned any number of partitions.
// A rejected message counts as dead-lettered at once.
//
// A Rig's methods are called from one goroutine. Those that wait say so; after
// the others, in a synctest bubble, synctest.Wait waits for what they began. A
// Rig has to be ended, with Finish or with Abandon.
type Rig struct {
	lane    *recordLane
	tracker tracker
	woken   chan struct{}
	epochs  map[Epoch]*progress
	lastN   uint64
	watched bool

	mu       sync.Mutex
	verdicts []Verdict
	reasons  map[*span]error // of rejections, until the span is settled
	claimed  map[slot]any    // see HandedOn
	misuse   error
}

// NewRig starts the lane of a pipeline.
func NewRig(pipeline Strategy[*kgo.Record]) *Rig {
	r := &Rig{
		woken:   make(chan struct{}, 1),
		epochs:  make(map[Epoch]*progress),
		reasons: make(map[*span]error),
		claimed: make(map[slot]any),
	}
	r.tracker.wake = func() {
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
	r.tracker.rejected = r.rejected
	r.tracker.misused = r.misused
	r.tracker.spanSize = spanSize
	r.lane = newRecordLane(&r.tracker.watched, laneEvents{
		wake:   r.tracker.wake,
		failed: func(error) { r.tracker.wake() },
		ended:  func(*recordLane) { r.tracker.wake() },
	})
	r.lane.build = func() (Strategy[*kgo.Record], error) { return pipeline, nil }
	go r.lane.serve()
	return r
}

// Watch makes Verdicts tell of what is fed from here on. Each record gets a
// span of its own then, so that verdicts are seen one at a time.
func (r *Rig) Watch() {
	r.watched = true
	r.tracker.told = r.settled
	r.tracker.spanSize = 1
}

// Assign begins an epoch of a partition.
func (r *Rig) Assign(p Partition) Epoch {
	r.lastN++
	state := &epochState{Epoch: Epoch{p, r.lastN}}
	state.ctx, state.cancel = context.WithCancelCause(context.Background())
	r.epochs[state.Epoch] = newProgress(state, &r.tracker, r.lane)
	return state.Epoch
}

// Feed queues records for the pipeline, as if they were fetched together. It
// takes over the slice. Offsets rise within an epoch.
func (r *Rig) Feed(e Epoch, records ...*kgo.Record) { r.lane.enqueue(r.append(e, records)) }

// Messages returns the messages of records that are not fed to the pipeline: a
// test hands them to a function itself.
func (r *Rig) Messages(e Epoch, records ...*kgo.Record) []Message[*kgo.Record] {
	msgs := make([]Message[*kgo.Record], 0, len(records))
	spans := r.append(e, records)
	for i := range spans {
		s := &spans[i]
		for j, record := range s.records {
			msgs = append(msgs, Message[*kgo.Record]{Payload: record, span: s, index: uint8(j)})
		}
	}
	return msgs
}

func (r *Rig) append(e Epoch, records []*kgo.Record) []span {
	if len(records) == 0 {
		return nil
	}
	last := records[len(records)-1]
	return r.progress(e).append(records, position{last.Offset + 1, last.LeaderEpoch}, time.Now())
}

// Drain begins what a revocation does first: what of the epochs was never
// submitted is returned, messages may be returned, and the pipeline is flushed.
// The drain is over when Unsettled is 0.
func (r *Rig) Drain(epochs ...Epoch) {
	of := r.all(epochs)
	for _, p := range of {
		p.beginDrain()
	}
	r.lane.drainBegins()
	r.lane.dropQueued(func(p *progress) bool { return slices.Contains(of, p) })
	r.lane.requestFlush(of...)
}

// FlushAtBound flushes the pipeline as a run does whose records are all held
// back, so that it has no room for more: of some epochs, or of all if none is
// given.
func (r *Rig) FlushAtBound(epochs ...Epoch) { r.lane.requestFlushAtBound(r.all(epochs)...) }

// Fence ends epochs as a lost partition does.
func (r *Rig) Fence(epochs ...Epoch) {
	for _, p := range r.all(epochs) {
		p.state.fence(ErrFenced)
		p.forget()
	}
}

// Stop begins the end of a run: what was never submitted is returned, the rest
// is drained, and the pipeline is flushed and closed.
func (r *Rig) Stop() {
	for _, p := range r.epochs {
		if !p.state.fenced.Load() {
			p.beginDrain()
		}
	}
	r.lane.drainBegins()
	r.lane.dropQueued(func(p *progress) bool { return p.draining.Load() })
	r.lane.requestFinish()
}

// Finish is Stop; it waits for the end and returns Err.
func (r *Rig) Finish() error {
	r.Stop()
	<-r.lane.done
	return r.Err()
}

// Abandon ends the contexts under which the pipeline works, as a run does whose
// drain is past its deadline.
func (r *Rig) Abandon() { r.lane.abandon(ErrAbandoned) }

// Done is closed when the pipeline is closed and all goroutines of its lane
// have ended.
func (r *Rig) Done() <-chan struct{} { return r.lane.done }

// Err returns what would have ended the run: an error or a panic of the
// pipeline, or a message returned outside of a drain.
func (r *Rig) Err() error {
	if err := r.lane.failure(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.misuse
}

// Wait waits until the lane has nothing to do: everything fed is submitted, and
// what Drain or FlushAtBound asked for is done. Goroutines of the steps may be
// at work all the same; in a synctest bubble, synctest.Wait waits for them too.
func (r *Rig) Wait() {
	r.tracker.watched.Store(true)
	defer r.tracker.watched.Store(false)
	for !r.lane.isIdle() {
		select {
		case <-r.woken:
		case <-r.lane.done:
			return
		}
	}
}

// Settle waits until everything fed is settled. It returns an error if the lane
// ends before.
func (r *Rig) Settle() error {
	// Nobody is woken before all of it is, as little as the loop of a run is.
	t := &r.tracker
	defer t.commitAt.Store(0)
	for {
		settled := t.settled.Load() // looked at first, so that all are not too many
		left := t.inFlight.Load()
		if left == 0 {
			return nil
		}
		all := settled + left
		if t.commitAt.Store(all); t.settled.Load() >= all {
			continue
		}
		select {
		case <-r.woken:
		case <-r.lane.done:
			return errors.Join(errors.New("arroyo: Rig: the lane ended before everything was settled"), r.Err())
		}
		if err := r.Err(); err != nil {
			return err
		}
	}
}

// Unsettled returns how many of an epoch's records are not settled.
func (r *Rig) Unsettled(e Epoch) int { return r.progress(e).pending() }

// Watermark returns the offset below which all of an epoch's records are done.
// It is false before any was fed.
func (r *Rig) Watermark(e Epoch) (offset int64, known bool) {
	p := r.progress(e)
	p.advance()
	return p.watermark.offset, p.known
}

// Counts returns what a step counted, by the step's name.
func (r *Rig) Counts(step string) map[string]int64 {
	r.lane.mu.Lock()
	steps := slices.Clone(r.lane.steps)
	r.lane.mu.Unlock()
	for _, s := range steps {
		if s.Name() == step {
			_, counts := s.status()
			return counts
		}
	}
	return nil
}

func (r *Rig) all(epochs []Epoch) (of []*progress) {
	for _, e := range epochs {
		of = append(of, r.progress(e))
	}
	return of
}

func (r *Rig) progress(e Epoch) *progress {
	p := r.epochs[e]
	if p == nil {
		panic("arroyo: Rig: the epoch " + e.String() + " is not one that Assign returned")
	}
	return p
}

func (r *Rig) misused(err error) {
	r.mu.Lock()
	if r.misuse == nil {
		r.misuse = err
	}
	r.mu.Unlock()
	r.tracker.wake()
}
