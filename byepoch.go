package arroyo

import "iter"

// ByEpoch yields the messages in runs of consecutive ones of the same epoch,
// in their order. A run is a part of msgs. A message without a record, or with
// records of several epochs (see Message.Epochs), comes alone and with the zero
// Epoch.
func ByEpoch[T any](msgs []Message[T]) iter.Seq2[Epoch, []Message[T]] {
	return func(yield func(Epoch, []Message[T]) bool) {
		for i := 0; i < len(msgs); {
			owner, n := ownerOf(msgs[i]), 1
			var epoch Epoch
			if owner != nil {
				epoch = owner.state.Epoch
				for last := msgs[i].span; i+n < len(msgs); n++ {
					if next := msgs[i+n].span; next != last || next.from != nil {
						if ownerOf(msgs[i+n]) != owner {
							break
						}
						last = next
					}
				}
			}
			if !yield(epoch, msgs[i:i+n:i+n]) {
				return
			}
			i += n
		}
	}
}

// ownerOf returns the progress that all of the message's records belong to, if
// they belong to one.
func ownerOf[T any](m Message[T]) *progress {
	switch {
	case m.span == nil:
		return nil
	case m.span.from == nil:
		return m.span.owner
	}
	var owner *progress
	one := slot{m.span, m.index}.each(func(s slot) bool {
		if owner == nil {
			owner = s.span.owner
		}
		return owner == s.span.owner
	})
	if !one {
		return nil
	}
	return owner
}
