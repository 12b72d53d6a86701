package arroyo

// ReturnUnbegun returns the message, which nobody has begun to work on, if that
// can be done and undoes nothing: if all of its records' epochs are being
// drained, and it is not one of several that Split made, of which others may
// have been worked on. It reports whether the message is settled now. Steps
// that hold messages before they work on them call it when a drain begins, and
// finish what it does not return.
func (m Message[T]) ReturnUnbegun() (settled bool) {
	if s := m.span; s != nil && s.mayReturn(m.index) {
		s.giveBack(1 << m.index)
	}
	return m.Settled()
}

// mayReturn reports whether a message that was not begun can be returned.
func (s *span) mayReturn(index uint8) bool {
	if s.from == nil {
		return s.owner.draining.Load()
	}
	return s.from.whole() && s.from.each(int(index), func(root slot) bool { return root.span.owner.draining.Load() })
}

// whole reports whether none of the members is one of several.
func (ms members) whole() bool {
	for _, m := range ms {
		if m.span.from != nil && !m.span.from.whole() {
			return false
		}
	}
	return true
}

func (p *split) whole() bool {
	return p.children == 1 && (p.parent.span.from == nil || p.parent.span.from.whole())
}
