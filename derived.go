package arroyo

import (
	"math/bits"
	"sync/atomic"
)

type verdict uint8

const (
	acked verdict = iota
	rejected
	returned
)

// origin is what derived messages were made from.
type origin interface {
	// each yields the source slots behind a derived message until yield
	// returns false, and reports whether it went through all of them.
	each(index int, yield func(slot) bool) bool
	// giveBackDraining returns what of a derived message's origin is being
	// drained, and reports whether nothing of the message is left.
	giveBackDraining(index int) (all bool)
	// whole reports whether the derived messages stand for all of what their
	// origin's records are, alone.
	whole() bool
	// decided is told of n messages that got their (first) verdict.
	decided(n int, v verdict, err error)
}

// members is the origin of a message made by Join: slots, those of one span in
// a row put together.
type members []struct {
	span *span
	mask uint64
}

func (ms members) each(_ int, yield func(slot) bool) (all bool) {
	all = true
	ms.slots(func(s slot) bool {
		all = s.each(yield)
		return all
	})
	return all
}

// slots yields the members.
func (ms members) slots(yield func(slot) bool) {
	for _, m := range ms {
		for mask := m.mask; mask != 0; mask &= mask - 1 {
			if !yield(slot{m.span, uint8(bits.TrailingZeros64(mask))}) {
				return
			}
		}
	}
}

func (ms members) decided(_ int, v verdict, err error) {
	for _, m := range ms {
		switch v {
		case acked:
			m.span.ack(m.mask)
		case rejected:
			for mask := m.mask; mask != 0; mask &= mask - 1 {
				m.span.reject(uint8(bits.TrailingZeros64(mask)), err)
			}
		case returned:
			m.span.giveBack(m.mask)
		}
	}
}

func (ms members) giveBackDraining(int) (all bool) {
	all = true
	for _, m := range ms {
		for mask := m.mask; mask != 0; mask &= mask - 1 {
			m.span.giveBackDraining(uint8(bits.TrailingZeros64(mask)))
		}
		all = all && m.span.decided.Load()&m.mask == m.mask
	}
	return all
}

// split is the origin of the messages made by one Split.
type split struct {
	parent    slot
	children  int
	undecided atomic.Int32
	returned  atomic.Bool
	rejection atomic.Pointer[error]
}

func (p *split) each(_ int, yield func(slot) bool) bool { return p.parent.each(yield) }

// A child is returned only together with all of its parent's records.
func (p *split) giveBackDraining(int) (all bool) {
	return p.parent.each(func(root slot) bool { return root.span.owner.draining.Load() })
}

func (p *split) decided(n int, v verdict, err error) {
	switch v {
	case rejected:
		p.rejection.CompareAndSwap(nil, &err)
	case returned:
		p.returned.Store(true)
	}
	if p.undecided.Add(int32(-n)) != 0 {
		return
	}
	switch rejection := p.rejection.Load(); {
	case p.returned.Load():
		p.parent.span.giveBack(1 << p.parent.index)
	case rejection != nil:
		p.parent.span.reject(p.parent.index, *rejection)
	default:
		p.parent.span.ack(1 << p.parent.index)
	}
}
