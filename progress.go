package arroyo

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

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
	lane  *recordLane
	ctx   context.Context // the epoch's, with the lane in it

	spans     []*span // oldest first, without the fully done ones at the front
	head      int     // of spans
	compactAt int     // how many spans there are when done ones are dropped again
	dropped   int     // how many were before these
	watermark position
	timestamp time.Time // of the last record below the watermark; with recycle, of the last whole span's
	known     bool      // whether there is a watermark yet
	committed int64     // the watermark that was committed last; -1
	logged    bool      // whether it is in the commit log; what the last owner committed may not be

	stop func() bool // of what ends ctx with the lane

	// Of the run loop.
	room        room
	stalled     bool
	abandoned   bool // what was not done at a deadline is counted
	unclean     bool // and is in what Run returns
	committedAt time.Time
	judge       *judge // nil without limits of dead letters

	inFlight atomic.Int64 // records of unsettled spans
	bytes    atomic.Int64 // of these

	undelivered atomic.Int64 // rejected records whose dead letters are not delivered

	listens    atomic.Bool   // whether the run loop looks at it when something is settled
	listed     atomic.Bool   // whether it is about to
	draining   atomic.Bool   // whether messages may be returned
	drains     chan struct{} // closed when draining begins
	exceptions sync.Mutex    // see span.except
}

// tracker is what all epochs of a run share.
type tracker struct {
	inFlight atomic.Int64 // records of unsettled spans
	bytes    atomic.Int64 // of these
	settled  atomic.Int64 // records of spans that were settled
	commitAt atomic.Int64 // of settled: when a commit is due; 0: never
	spanSize int          // how many records to put into a span, at most
	recycle  bool         // whether records go back to kgo's pools
	watched  atomic.Bool  // whether the run loop waits for any span to settle
	again    again
	wake     func() // wakes the run loop; never blocks
	rejected func(s *span, index int, err error)
	misused  func(error) // a step broke the rules of verdicts
	told     func(*span) // of each span that is settled; nil but in a Rig
}

func newProgress(state *epochState, run *tracker, lane *recordLane) *progress {
	p := &progress{state: state, run: run, lane: lane, committed: -1, drains: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(epochContext{state.ctx, p, &lane.Lane})
	p.ctx = ctx
	p.stop = context.AfterFunc(lane.ctx, func() { cancel(context.Cause(lane.ctx)) })
	context.AfterFunc(state.ctx, lane.drainBegins) // see Draining
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
func (p *progress) append(records []*kgo.Record, next position, now time.Time) []span {
	if len(records) == 0 {
		p.skip(next)
		return nil
	}
	size := p.run.spanSize
	spans := make([]span, (len(records)+size-1)/size)
	of := &source{owner: p, since: now}
	bytes := 0
	for i := range spans {
		s := &spans[i]
		s.records = records[i*size : min((i+1)*size, len(records))]
		s.init(len(s.records), &p.state.fenced)
		s.number()
		s.source = of
		s.bytes = sizeOf(s.records, len(spans), i)
		bytes += s.bytes
		last := s.records[len(s.records)-1]
		s.next = position{last.Offset + 1, last.LeaderEpoch}
		s.last = last.Timestamp.UnixMilli()
		p.spans = append(p.spans, s)
	}
	spans[len(spans)-1].next = next
	p.count(len(records), bytes)
	return spans
}

// count adds to what is in flight.
func (p *progress) count(records, bytes int) {
	p.inFlight.Add(int64(records))
	p.bytes.Add(int64(bytes))
	p.run.inFlight.Add(int64(records))
	p.run.bytes.Add(int64(bytes))
}

// One of so many records of a large fetch is looked at to know how large they
// are. Looking at each costs more than all else that the run loop does: they are
// not in its processor's cache.
const (
	sampled     = 8
	sampledMany = 16 // of many spans
	manySpans   = 16
)

// recordSize is what a record takes besides its key, value and headers: kgo's
// struct, the pointers to it, and about 10 bytes in the batch that it was in,
// which its value keeps alive. (RecordHeader: a string and a slice.)
const (
	recordSize = int(unsafe.Sizeof(kgo.Record{})) + 8 + 10
	headerSize = int(unsafe.Sizeof(kgo.RecordHeader{}))
)

// slack is what is counted for the memory around a record of a decompressed
// batch: the allocator rounds up, and zstd's decoder asks for more than it
// needs.
func slack(r *kgo.Record, size int) int {
	switch r.Attrs.CompressionType() {
	case uint8(kgo.CodecNone):
		return 0
	case uint8(kgo.CodecZstd):
		return size / 8
	}
	return size / 16
}

// sizeOf returns how many bytes the records of a span take: about, if the span
// is one of several that were fetched together.
func sizeOf(records []*kgo.Record, spans, span int) (n int) {
	first, step := 0, 1
	if spans > 1 && len(records) >= sampledMany {
		step = sampled
		if spans >= manySpans {
			step = sampledMany
		}
		first = span % step // what records have in common may repeat
	}
	looked := 0
	for i := first; i < len(records); i += step {
		r := records[i]
		size := recordSize + len(r.Key) + len(r.Value)
		for j := range r.Headers {
			size += headerSize + len(r.Headers[j].Key) + len(r.Headers[j].Value)
		}
		n += size + slack(r, size)
		looked++
	}
	return n * len(records) / looked
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
	if p.judge != nil {
		p.judgeOn() // it has to see what is let go of here
	}
	for ; p.head < len(p.spans); p.head++ {
		s := p.spans[p.head]
		done := s.done()
		if done == len(s.records) {
			if p.judge != nil && !p.judged(p.dropped+p.head) {
				break // the next time
			}
			p.watermark, p.known, p.timestamp = s.next, true, time.UnixMilli(s.last)
			p.spans[p.head] = nil
			continue
		}
		if !p.known {
			p.watermark, p.known = position{-1, -1}, true
		}
		p.watermark.offset = s.offset(done)
		if done > 0 && !p.run.recycle {
			p.timestamp = s.records[done-1].Timestamp
		}
		break
	}
	if p.head > len(p.spans)/2 {
		n := copy(p.spans, p.spans[p.head:])
		clear(p.spans[n:])
		p.dropped += p.head
		p.spans, p.head = p.spans[:n], 0
	}
	if len(p.spans) >= p.compactAt && p.judge == nil {
		p.compact()
	}
}

// compactFrom is from how many spans on it is worth looking for done ones.
const compactFrom = 64

// compact drops spans that are done and followed by another that is. Where
// records settle out of order, one that is stuck would keep all in memory that
// come behind it.
func (p *progress) compact() {
	kept := p.spans[:p.head]
	for i := p.head; i < len(p.spans); i++ {
		s := p.spans[i]
		if i+1 < len(p.spans) && s.done() == len(s.records) && p.spans[i+1].done() == len(p.spans[i+1].records) {
			continue
		}
		kept = append(kept, s)
	}
	clear(p.spans[len(kept):])
	p.spans = kept
	p.compactAt = max(compactFrom, 2*len(kept))
}

// pending returns how many records are not settled.
func (p *progress) pending() (n int) {
	for _, s := range p.spans[p.head:] {
		n += s.pending()
	}
	return n
}

// oldest returns the first record that is not settled, and since when it is
// here.
func (p *progress) oldest() (offset int64, since time.Time, ok bool) {
	if s, at := p.oldestSpan(); s != nil {
		return s.offset(at), s.since, true
	}
	return 0, time.Time{}, false
}

// oldestStep returns where the oldest record that is not settled is.
func (p *progress) oldestStep() string {
	if s, at := p.oldestSpan(); s != nil && s.rejected.Load()>>at&1 != 0 {
		return letterStep
	}
	return p.lane.stepName()
}

// oldestSpan returns the first span with something pending, and where in it.
func (p *progress) oldestSpan() (s *span, at int) {
	for _, s := range p.spans[p.head:] {
		if at := s.firstPending(); at < len(s.records) {
			return s, at
		}
	}
	return nil, 0
}

// letterStep is the step that a message is in whose dead letter is on its way.
const letterStep = "dead letter"

// forget ends the accounting of an epoch that is over. Verdicts that come
// later change nothing.
func (p *progress) forget() {
	p.stop()
	for _, s := range p.spans[p.head:] {
		if s.settled.CompareAndSwap(false, true) {
			p.count(-len(s.records), -s.bytes)
		}
	}
}

func (p *progress) spanSettled(s *span) {
	if p.run.told != nil {
		p.run.told(s)
	}
	if p.run.recycle && s.returned.Load() == 0 {
		recycle(s.records)
	}
	p.count(-len(s.records), -s.bytes)
	settled := p.run.settled.Add(int64(len(s.records)))
	due := p.run.commitAt.Load()
	if p.lane.watched.Load() || p.run.watched.Load() || due > 0 && settled >= due {
		p.run.wake()
	}
	if p.listens.Load() {
		p.lookAgain()
	}
}

// letterDone says that a rejected message's dead letter needs no more waiting
// for. Lanes wake the loop when they end, but a letter may come behind them.
func (p *progress) letterDone() {
	p.undelivered.Add(-1)
	if p.lane.watched.Load() || p.run.watched.Load() || p.draining.Load() {
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
			Offset: s.offset(index),
			Err:    ErrReturned,
		})
	}
}
