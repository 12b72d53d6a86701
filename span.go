package arroyo

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// spanSize is how many messages share a span: one machine word of verdicts.
const spanSize = 64

// span holds the verdicts of up to 64 messages. A source span is a run of
// consecutive records of one epoch. A derived span belongs to messages made by
// Join or Split and passes each verdict on to what they were made from.
//
// The bits: decided = a verdict is in (who sets the bit wins); rejected = it
// was Reject, and the dead letter is not delivered yet; returned = it was
// Return. A record is done when it is decided and neither of the others.
type span struct {
	full     uint64 // a bit for each message
	decided  atomic.Uint64
	rejected atomic.Uint64
	returned atomic.Uint64
	settled  atomic.Bool // everything decided and delivered; set once

	// While it is false, no message of the span is fenced: what nearly every
	// look at a message finds, and cheap enough to be inlined.
	mayBeFenced *atomic.Bool

	// In a source span. There is one for every 64 records that are in memory,
	// so it is kept small.
	*source
	records []*kgo.Record    // not to be looked at once the span is settled: see recycle
	first   int64            // offset
	offsets *[spanSize]int64 // nil if they follow each other from first on
	next    position         // where to go on once all of the span is done
	last    int64            // the last record's timestamp, in ms
	bytes   int
	markers atomic.Uint64 // of transactions; set before they are acked

	// In a derived span.
	from origin
}

// source is what the spans of one fetched slice have in common.
type source struct {
	owner *progress
	since time.Time // when it was fetched
}

// slot is one message's place in a span.
type slot struct {
	span  *span
	index uint8
}

func (s *span) init(n int, mayBeFenced *atomic.Bool) {
	s.full = ^uint64(0) >> (spanSize - n)
	s.mayBeFenced = mayBeFenced
}

// number notes the records' offsets.
func (s *span) number() {
	n := len(s.records)
	s.first = s.records[0].Offset
	if s.records[n-1].Offset-s.first == int64(n-1) {
		return
	}
	s.offsets = new([spanSize]int64) // a compacted log, or markers that were stripped
	for i, r := range s.records {
		s.offsets[i] = r.Offset
	}
}

// offset returns that of a record, which may have been recycled.
func (s *span) offset(i int) int64 {
	if s.offsets == nil {
		return s.first + int64(i)
	}
	return s.offsets[i]
}

// maybe is for spans whose messages come from several epochs: it is true.
var maybe = func() *atomic.Bool {
	b := new(atomic.Bool)
	b.Store(true)
	return b
}()

// ack gives the verdict Ack to all messages of the mask that have none.
func (s *span) ack(mask uint64) {
	old := s.decided.Or(mask)
	if s.from != nil {
		if won := mask &^ old; won != 0 {
			s.from.decided(bits.OnesCount64(won), acked, nil)
		}
		return
	}
	if now := old | mask; now == s.full && now != old {
		s.settle()
	}
}

// giveBack gives the verdict Return to all messages of the mask that have
// none.
func (s *span) giveBack(mask uint64) {
	if s.from != nil {
		s.derive(mask, returned, nil)
		return
	}
	if won := s.except(mask, &s.returned); won != 0 {
		s.owner.returned(s, bits.TrailingZeros64(won))
		s.settle()
	}
}

// giveBackDraining is giveBack for a message, or the part of it, whose epoch is
// being drained.
func (s *span) giveBackDraining(index uint8) {
	switch {
	case s.from != nil:
		if s.from.giveBackDraining(int(index)) {
			s.giveBack(1 << index)
		}
	case s.owner.draining.Load():
		s.giveBack(1 << index)
	}
}

// reject gives the verdict Reject to a message that has none.
func (s *span) reject(index uint8, err error) {
	if s.from != nil {
		s.derive(1<<index, rejected, err)
		return
	}
	if won := s.except(1<<index, &s.rejected); won != 0 {
		s.owner.rejected(s, int(index), err)
		return
	}
	// An Ack that came in between may have met the rejection that was taken
	// back, and left the span for us to settle.
	s.settle()
}

func (s *span) derive(mask uint64, v verdict, err error) {
	if won := mask &^ s.decided.Or(mask); won != 0 {
		s.from.decided(bits.OnesCount64(won), v, err)
	}
}

// except gives a verdict other than Ack and returns the bits that it won. The
// exception's bits are set before the deciding ones, so that the watermark
// never sees such a record decided and takes it for done. Those that lost to
// an Ack in between are taken back; the lock keeps two losers from taking back
// a winner's bit.
func (s *span) except(mask uint64, exception *atomic.Uint64) (won uint64) {
	s.owner.exceptions.Lock()
	defer s.owner.exceptions.Unlock()
	mask &^= s.decided.Load()
	exception.Or(mask)
	lost := s.decided.Or(mask) & mask
	exception.And(^lost)
	return mask &^ lost
}

// delivered says that the dead letter of a rejected message was delivered.
func (s *span) delivered(index uint8) {
	s.rejected.And(^(1 << index))
	s.settle()
	s.owner.letterDone()
}

// retract makes of a rejection, whose dead letter is not delivered, a Return.
func (s *span) retract(index uint8) {
	s.returned.Or(1 << index)
	s.delivered(index)
}

// settle tells the epoch, once, that nothing of the span is pending.
func (s *span) settle() {
	if s.decided.Load() == s.full && s.rejected.Load() == 0 && s.settled.CompareAndSwap(false, true) {
		s.owner.spanSettled(s)
	}
}

// done returns how many records from the span's start on are done.
func (s *span) done() int {
	decided := s.decided.Load() // before the exceptions, which were set before it
	done := decided &^ (s.rejected.Load() | s.returned.Load())
	if done == s.full {
		return len(s.records)
	}
	return bits.TrailingZeros64(^done)
}

// pending returns how many messages have no verdict, or one that is not
// delivered.
func (s *span) pending() int { return bits.OnesCount64(s.pendingBits()) }

// firstPending returns the first of them; the span's length, or more, if there
// is none.
func (s *span) firstPending() int { return bits.TrailingZeros64(s.pendingBits()) }

func (s *span) pendingBits() uint64 {
	decided := s.decided.Load() // before the exceptions, which were set before it
	return s.full &^ (decided &^ s.rejected.Load())
}

func (s *span) fenced(index uint8) bool {
	if s.from == nil {
		return s.owner.state.fenced.Load()
	}
	fenced := false // without records there is nothing to lose
	s.from.each(int(index), func(root slot) bool {
		fenced = root.span.fenced(root.index)
		return fenced
	})
	return fenced
}

// offset returns that of a source slot's record.
func (s slot) offset() int64 { return s.span.offset(int(s.index)) }

// root returns the first source slot that a slot leads back to.
func (s slot) root() (root slot) {
	s.each(func(s slot) bool { root = s; return false })
	return root
}

// each yields the source slots that a slot leads back to, until yield returns
// false; it reports whether it went through all of them.
func (s slot) each(yield func(slot) bool) bool {
	if s.span.from == nil {
		return yield(s)
	}
	return s.span.from.each(int(s.index), yield)
}
