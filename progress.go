package arroyo

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// position is an offset to go on from, with the leader epoch of the record
// before it (KIP-320; -1 when unknown).
type position struct {
	offset      int64
	leaderEpoch int32
}

// progress is how far one epoch's records are done. The run loop owns it; what
// steps do reaches it through the spans' bits and the atomic fields only.
type progress struct {
	state *epochState
	run   *tracker
	ctx   context.Context // the epoch's, with the lane in it

	spans     []*span // oldest first, without the fully done ones at the front
	head      int     // of spans
	watermark position
	known     bool  // whether there is a watermark yet
	committed int64 // the watermark that was committed last; -1

	stop func() bool // of what ends ctx with the lane

	unsettled  atomic.Int64  // spans with something pending
	draining   atomic.Bool   // whether messages may be returned
	drains     chan struct{} // closed when draining begins
	exceptions sync.Mutex    // see span.except
}

// tracker is what all epochs of a run share.
type tracker struct {
	inFlight atomic.Int64 // records of unsettled spans
	watched  atomic.Bool  // whether the run loop waits for spans to settle
	wake     func()       // wakes the run loop; never blocks
	rejected func(s *span, index int, err error)
	misused  func(error) // a step broke the rules of verdicts
}

func newProgress(state *epochState, run *tracker, lane *Lane) *progress {
	p := &progress{state: state, run: run, committed: -1, drains: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(epochContext{state.ctx, p, lane})
	p.ctx = ctx
	p.stop = context.AfterFunc(lane.ctx, func() { cancel(context.Cause(lane.ctx)) })
	return p
}

// epochContext is an epoch's context with its lane in it.
type epochContext struct {
	context.Context
	progress *progress
	lane     *Lane
}

func (c epochContext) Value(key any) any {
	switch key.(type) {
	case laneKey:
		return c.lane
	case epochKey:
		return c.progress
	}
	return c.Context.Value(key)
}

// beginDrain lets messages be returned from here on.
func (p *progress) beginDrain() {
	if p.draining.CompareAndSwap(false, true) {
		close(p.drains)
	}
}

// append adds a fetched slice of records, as spans; next is the position behind
// it, which control records may have moved beyond the last record.
func (p *progress) append(records []*kgo.Record, next position) []span {
	if len(records) == 0 {
		p.skip(next)
		return nil
	}
	spans := make([]span, (len(records)+spanSize-1)/spanSize)
	for i := range spans {
		s := &spans[i]
		s.records = records[i*spanSize : min((i+1)*spanSize, len(records))]
		s.init(len(s.records), &p.state.fenced)
		s.owner = p
		last := s.records[len(s.records)-1]
		s.next = position{last.Offset + 1, last.LeaderEpoch}
		p.spans = append(p.spans, s)
	}
	spans[len(spans)-1].next = next
	p.unsettled.Add(int64(len(spans)))
	p.run.inFlight.Add(int64(len(records)))
	return spans
}

// skip moves the end of what was seen over control records.
func (p *progress) skip(next position) {
	if p.head < len(p.spans) {
		p.spans[len(p.spans)-1].next = next
		return
	}
	p.watermark, p.known = next, true
}

// advance moves the watermark: the offset below which every record seen is
// done. It goes by the records seen, so that gaps in the log are no obstacle.
func (p *progress) advance() {
	for ; p.head < len(p.spans); p.head++ {
		s := p.spans[p.head]
		done := s.done()
		if done == len(s.records) {
			p.watermark, p.known = s.next, true
			p.spans[p.head] = nil
			continue
		}
		// Reads the first record that is not done, never one before it:
		// those may have been recycled.
		if !p.known {
			p.watermark, p.known = position{-1, -1}, true
		}
		p.watermark.offset = s.records[done].Offset
		break
	}
	if p.head > len(p.spans)/2 {
		n := copy(p.spans, p.spans[p.head:])
		clear(p.spans[n:])
		p.spans, p.head = p.spans[:n], 0
	}
}

// pending returns how many records are not settled.
func (p *progress) pending() (n int) {
	for _, s := range p.spans[p.head:] {
		n += s.pending()
	}
	return n
}

// oldest returns the offset of the first record that is not settled.
func (p *progress) oldest() (offset int64, ok bool) {
	for _, s := range p.spans[p.head:] {
		if s.pending() > 0 {
			return s.records[s.done()].Offset, true
		}
	}
	return 0, false
}

// forget ends the accounting of an epoch that is over. Verdicts that come
// later change nothing.
func (p *progress) forget() {
	p.stop()
	for _, s := range p.spans[p.head:] {
		if s.settled.CompareAndSwap(false, true) {
			p.unsettled.Add(-1)
			p.run.inFlight.Add(-int64(len(s.records)))
		}
	}
}

func (p *progress) spanSettled(s *span) {
	p.unsettled.Add(-1)
	p.run.inFlight.Add(-int64(len(s.records)))
	if p.run.watched.Load() {
		p.run.wake()
	}
}

func (p *progress) rejected(s *span, index int, err error) {
	if !p.state.fenced.Load() {
		p.run.rejected(s, index, err)
	}
}

func (p *progress) returned(s *span, index int) {
	if !p.draining.Load() && !p.state.fenced.Load() {
		p.run.misused(&StepError{
			Epoch:  p.state.Epoch,
			Offset: s.records[index].Offset,
			Err:    ErrReturned,
		})
	}
}
