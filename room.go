package arroyo

import "time"

// room is how full one partition of a partitioned processor is, and what was
// done about it. It is of the run loop.
type room struct {
	since   time.Time // when it was seen to be full; zero if it is not
	with    float64   // its load then
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
	// All together get this share of the time, so that many which are slow
	// do not keep the others from being fetched.
	patienceShare = 0.1
	// A partition that is resumed waits for the fetch in flight, so what it
	// has left has to last as long (see defaultFetchMaxWait).
	resumeTime = 300 * time.Millisecond
)

// hasRoom reports whether more records may be fetched.
func (r *run) hasRoom(now time.Time) bool {
	switch {
	case r.stopping:
		r.watch(len(r.drains) > 0)
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
	room := r.total() < 1
	r.watch(!room || len(r.drains) > 0)
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
	r.watch(len(r.drains) > 0)
	r.patience.look(now)
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
		case p.room.paused && load <= p.room.low(load, now), !p.room.paused && load < 1:
			r.hasRoomAgain(p)
			continue
		case p.room.paused:
		default:
			if wait := min(p.room.patience(load, now), r.patience.left); wait > 0 {
				room = false
				if at := now.Add(wait); r.roomAt.IsZero() || at.Before(r.roomAt) {
					r.roomAt = at
				}
			} else {
				r.pauseFull(p)
			}
		}
		if !p.room.flushed && p.lane.isIdle() {
			p.room.flushed = true
			r.boundFlushes++
			p.lane.requestFlushAtBound(p)
		}
	}
	r.patience.fetching = room
	return room
}

// patience is the time that full partitions may get to make room.
type patience struct {
	left     time.Duration
	looked   time.Time
	fetching bool // since then
}

func (p *patience) look(now time.Time) {
	switch since := now.Sub(p.looked); {
	case p.looked.IsZero():
		p.left = roomPatience
	case p.fetching:
		p.left = min(p.left+time.Duration(patienceShare*float64(since)), roomPatience)
	default:
		p.left -= since
	}
	p.looked = now
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

// low returns the load at which a partition that is paused flows again: what it
// does while its resumption takes effect, by how fast it is.
func (m *room) low(load float64, now time.Time) float64 {
	waited := now.Sub(m.since)
	if waited <= 0 {
		return 0.5
	}
	rate := (m.with - load) / float64(waited)
	return min(max(rate*float64(resumeTime), 0.5), 0.9)
}

func (r *run) pauseFull(p *progress) {
	p.room.paused = true
	r.consumer.setPaused([]*epochState{p.state}, pausedForRoom, true)
	r.tell(func(hs hooks) { hs.paused(p.state.Epoch, true) })
}

// hasRoomAgain ends what was done about a partition that was full.
func (r *run) hasRoomAgain(p *progress) {
	paused := p.room.paused
	delete(r.full, p)
	p.room = room{}
	p.lane.watched.Store(false)
	if paused {
		r.consumer.setPaused([]*epochState{p.state}, pausedForRoom, false)
		r.tell(func(hs hooks) { hs.paused(p.state.Epoch, false) })
	}
}
