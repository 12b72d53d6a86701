package arroyo

// MayReturn reports whether the message, if nobody has begun to work on it, can
// be returned as a whole: whether all of its records' epochs are being drained,
// and it is not one of several that Split made, of which others may have been
// worked on. It stays so.
//
// Steps that hold messages before they work on them can return what they have
// not begun when a drain begins, and finish the rest. A message whose
// partition's later records were begun is better finished, too: the next owner
// goes on at the message that was returned, so they would be done again.
func (m Message[T]) MayReturn() bool { return m.span != nil && m.span.mayReturn(m.index) }

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
