package arroyo

// Offsets returns the lowest and the highest offset of the message's records
// that are of an epoch; false if none is.
func (m Message[T]) Offsets(e Epoch) (first, last int64, ok bool) {
	s := slot{m.span, m.index}
	switch {
	case s.span == nil:
		return 0, 0, false
	case s.span.from == nil:
		offset := s.offset()
		return offset, offset, s.span.owner.state.Epoch == e
	}
	return s.offsets(e)
}

func (s slot) offsets(e Epoch) (first, last int64, ok bool) {
	s.each(func(s slot) bool {
		if s.span.owner.state.Epoch == e {
			offset := s.offset()
			if !ok {
				first, last, ok = offset, offset, true
			}
			first, last = min(first, offset), max(last, offset)
		}
		return true
	})
	return first, last, ok
}
