package arroyo

import "time"

// hasRoom reports whether more records may be fetched.
func (r *run) hasRoom(now time.Time) bool {
	switch {
	case r.stopping:
		r.watch(r.shared != nil && len(r.drains) > 0)
		return false
	case r.shared != nil:
		return r.sharedRoom()
	}
	return r.lanesRoom(now)
}

// watch says whether the loop is to be woken whenever a span is settled. It is
// if that changes, because what settled between the two looks woke nobody.
func (r *run) watch(on bool) {
	if on != r.tracker.watched.Load() {
		r.tracker.watched.Store(on)
		r.consumer.wake()
	}
}

// total returns how full the run is; 1 is its bound.
func (r *run) total() float64 {
	return load(r.tracker.inFlight.Load(), r.tracker.bytes.Load(), r.config.total)
}

func load(records, bytes int64, of bound) float64 {
	return max(float64(records)/float64(of.records), float64(bytes)/float64(of.bytes))
}

func (r *run) sharedRoom() bool {
	const enough = 64 // spans before a full lane: up to 4,096 records
	room := r.total() < 1
	// While a lot is queued there is no need to use each bit of room at once:
	// to be woken for each span that is settled costs more than the span.
	r.watch(!room && r.shared.isShort(enough) || len(r.drains) > 0)
	if room {
		r.flushed = false
	} else if !r.flushed && r.shared.isIdle() {
		// The steps hold everything back: a batch that is larger than
		// the bound would wait for ever.
		r.flushed = true
		r.boundFlushes++
		r.shared.requestFlushAtBound()
	}
	return room
}
