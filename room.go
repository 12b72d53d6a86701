package arroyo

import "time"

// room is how full one partition of a partitioned processor is, and what was
// done about it. It is of the run loop.
type room struct {
	since   time.Time // when it was seen to be full; zero if it is not
	with    float64   // its load then
	low     float64   // the load at which it flows again
	paused  bool
	flushed bool // because it is full and its steps hold everything back
}

const (
	// A partition that becomes full gets this long to make room before it
	// is paused, and nothing is fetched meanwhile: pausing throws away what
	// kgo has fetched of it, and it is seldom full for longer.
	roomLook = 10 * time.Millisecond
	// If it is making room it gets as long as this.
	roomPatience = 50 * time.Millisecond
	// A partition that is resumed waits for the fetch in flight, so what it
	// has left has to last as long (see defaultFetchMaxWait).
	resumeTime = 300 * time.Millisecond
)

// hasRoom reports whether more records may be fetched.
func (r *run) hasRoom(now time.Time) bool {
	if r.stopping {
		return false
	}
	if r.shared != nil {
		return r.sharedRoom()
	}
	return r.lanesRoom(now)
}

// total returns how full the run is; 1 is its bound.
func (r *run) total() float64 {
	return load(r.tracker.inFlight.Load(), r.tracker.bytes.Load(), r.config.total)
}

func load(records, bytes int64, of bound) float64 {
	return max(float64(records)/float64(of.records), float64(bytes)/float64(of.bytes))
}

func (r *run) sharedRoom() bool {
	room := r.total() < 1
	if watch := !room || len(r.drains) > 0; watch != r.tracker.watched.Load() {
		r.tracker.watched.Store(watch)
		// What settled between the two looks did not wake us.
		room = r.total() < 1
		if len(r.drains) > 0 {
			r.consumer.wake()
		}
	}
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

// load returns how full a partition is; 1 is what it may have. Beyond the
// total bound that is an equal share of it.
func (r *run) load(p *progress) float64 {
	of := r.config.partition
	if r.over {
		n := max(1, len(r.progress))
		of.records = max(1, min(of.records, r.config.total.records/n))
		of.bytes = max(1, min(of.bytes, r.config.total.bytes/int64(n)))
	}
	return load(p.inFlight.Load(), p.bytes.Load(), of)
}

// lanesRoom looks at the partitions that are full, and pauses and resumes them.
// It reports false while one of them gets time to make room.
func (r *run) lanesRoom(now time.Time) bool {
	if watch := len(r.drains) > 0; watch != r.tracker.watched.Load() {
		r.tracker.watched.Store(watch)
		r.consumer.wake()
	}
	over := r.total() >= 1
	if over != r.over {
		if r.over = over; over {
			for _, p := range r.progress {
				r.checkFull(p, now)
			}
		}
	}
	room := true
	r.roomAt = time.Time{}
	for p := range r.full {
		load := r.load(p)
		switch {
		case p.room.paused && load <= p.room.low, !p.room.paused && load < 1:
			r.hasRoomAgain(p)
			continue
		case p.room.paused:
		default:
			if wait := p.room.patience(load, now); wait > 0 {
				room = false
				if at := now.Add(wait); r.roomAt.IsZero() || at.Before(r.roomAt) {
					r.roomAt = at
				}
			} else {
				r.pauseFull(p, load, now)
			}
		}
		if !p.room.flushed && p.lane.isIdle() {
			p.room.flushed = true
			r.boundFlushes++
			p.lane.requestFlushAtBound(p)
		}
	}
	return room
}

// patience returns how long to wait for a full partition before it is looked
// at again; 0: no longer.
func (m *room) patience(load float64, now time.Time) time.Duration {
	waited := now.Sub(m.since)
	if waited < roomLook {
		return roomLook - waited
	}
	rate := (m.with - load) / float64(waited)
	if rate <= 0 || waited >= roomPatience {
		return 0
	}
	left := time.Duration((load - 1) / rate)
	if waited+left > roomPatience {
		return 0
	}
	return max(left, time.Millisecond)
}

// checkFull begins to look after a partition that is full.
func (r *run) checkFull(p *progress, now time.Time) {
	if !p.room.since.IsZero() || p.draining.Load() {
		return
	}
	if load := r.load(p); load >= 1 {
		p.room = room{since: now, with: load}
		p.lane.watched.Store(true)
		r.full[p] = true
	}
}

func (r *run) pauseFull(p *progress, load float64, now time.Time) {
	rate := max(0, p.room.with-load) / float64(now.Sub(p.room.since))
	p.room.low = min(max(rate*float64(resumeTime), 0.5), 0.9)
	p.room.paused = true
	r.consumer.setPaused([]*epochState{p.state}, pausedForRoom, true)
	r.config.hooks.paused(p.state.Epoch, true)
}

// hasRoomAgain ends what was done about a partition that was full.
func (r *run) hasRoomAgain(p *progress) {
	paused := p.room.paused
	delete(r.full, p)
	p.room = room{}
	p.lane.watched.Store(false)
	if paused {
		r.consumer.setPaused([]*epochState{p.state}, pausedForRoom, false)
		r.config.hooks.paused(p.state.Epoch, false)
	}
}
