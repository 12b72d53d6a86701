package arroyo

import (
	"sync"
	"time"
)

// room is how full one partition of a partitioned processor is, and what was
// done about it. It is of the run loop.
type room struct {
	since   time.Time // when it was seen to be full; zero if it is not
	with    float64   // its load then
	flushed bool      // because it is full and its steps hold everything back
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
	// Those that are paused are looked at so often at the most, and resumed
	// together: kgo copies what is paused with every call.
	pausedLook = 5 * time.Millisecond
	// Beyond the total bound all have equal shares, until it is so full.
	notOver = 0.9
)

// full are the partitions that are full.
type full struct {
	making   map[*progress]bool // those that get time to make room
	paused   map[*progress]bool
	over     bool // whether the total bound is met
	patience patience
	lookAt   time.Time // when to look at those that are paused again
	at       time.Time // when to look at any of them; zero: it takes an event
}

func newFull() full {
	return full{making: make(map[*progress]bool), paused: make(map[*progress]bool)}
}

func (f *full) forget(p *progress) {
	delete(f.making, p)
	delete(f.paused, p)
}

// load returns how full a partition is; 1 is what it may have. Beyond the
// total bound that is an equal share of it.
func (r *run) load(p *progress) float64 {
	of := r.config.partition
	if r.full.over {
		n := max(1, len(r.progress))
		of.records = max(1, min(of.records, r.config.total.records/n))
		of.bytes = max(1, min(of.bytes, r.config.total.bytes/int64(n)))
	}
	return load(p.inFlight.Load(), p.bytes.Load(), of)
}

// checkFull begins to look after a partition that is full.
func (r *run) checkFull(p *progress, now time.Time) {
	if !p.room.since.IsZero() || p.draining.Load() {
		return
	}
	if load := r.load(p); load >= 1 {
		p.room = room{since: now, with: load}
		p.lane.watched.Store(true)
		r.full.making[p] = true
	}
}

// lanesRoom looks at the partitions that are full, and pauses and resumes them.
// It reports false while one of them gets time to make room.
func (r *run) lanesRoom(now time.Time) bool {
	f := &r.full
	f.patience.look(now)
	f.at = time.Time{}
	r.lookAtTotal(now)
	var pause, resume []*progress
	for _, p := range r.lookAtPaused(now) {
		if load := r.load(p); load <= p.room.low(load, now) {
			resume = append(resume, p)
		} else {
			r.flushFull(p)
		}
	}
	fetch := true
	making := f.making
	if f.patience.out && r.consumer.hasPolled() {
		// Before kgo is polled again is soon enough to pause them, all
		// together.
		making = nil
	}
	for p := range making {
		load := r.load(p)
		if load < 1 {
			delete(f.making, p)
			p.room = room{}
			p.lane.watched.Store(false)
			continue
		}
		r.flushFull(p)
		if wait := min(p.room.patience(load, now), f.patience.left); wait > 0 && !f.patience.out {
			fetch = false
			f.lookBy(now.Add(wait))
		} else {
			pause = append(pause, p)
		}
	}
	f.patience.fetching = fetch
	r.pauseFull(pause)
	r.resumeFull(resume)
	return fetch
}

func (f *full) lookBy(t time.Time) {
	if f.at.IsZero() || t.Before(f.at) {
		f.at = t
	}
}

// lookAtTotal looks whether the bound of all is met.
func (r *run) lookAtTotal(now time.Time) {
	switch total := r.total(); {
	case total >= 1 && !r.full.over:
		r.full.over = true
		for _, p := range r.progress {
			r.checkFull(p, now)
		}
	case total < notOver && r.full.over:
		r.full.over = false
		for p := range r.full.paused {
			p.lookAgain()
		}
		r.full.lookAt = now
	}
}

// lookAtPaused returns those that are paused and of which something was settled
// or whose lane became idle.
func (r *run) lookAtPaused(now time.Time) (ps []*progress) {
	if now.Before(r.full.lookAt) {
		if r.tracker.again.any() {
			r.full.lookBy(r.full.lookAt)
		}
		return nil
	}
	for _, p := range r.tracker.again.take() {
		if r.full.paused[p] {
			ps = append(ps, p)
		}
	}
	if len(ps) > 0 {
		r.full.lookAt = now.Add(pausedLook)
	}
	return ps
}

// flushFull flushes the steps of a full partition once if they hold everything
// back: a batch that is larger than the bound would wait for ever.
func (r *run) flushFull(p *progress) {
	if !p.room.flushed && p.lane.isIdle() {
		p.room.flushed = true
		r.boundFlushes++
		p.lane.requestFlushAtBound(p)
	}
}

func (r *run) pauseFull(ps []*progress) {
	for _, p := range ps {
		delete(r.full.making, p)
		r.full.paused[p] = true
		p.listens.Store(true)
		p.lane.watched.Store(false)
		p.lookAgain() // what was settled before it listened told nobody
	}
	r.tellRoom(ps, true)
}

func (r *run) resumeFull(ps []*progress) {
	for _, p := range ps {
		delete(r.full.paused, p)
		p.listens.Store(false)
		p.room = room{}
	}
	r.tellRoom(ps, false)
}

func (r *run) tellRoom(ps []*progress, paused bool) {
	if len(ps) == 0 {
		return
	}
	states := make([]*epochState, len(ps))
	for i, p := range ps {
		states[i] = p.state
	}
	r.consumer.setPaused(states, pausedForRoom, paused)
	r.tell(func(hs hooks) {
		for _, s := range states {
			hs.paused(s.Epoch, paused)
		}
	})
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

// patience is the time that full partitions may get to make room.
type patience struct {
	left     time.Duration
	out      bool // until there is enough of it for one of them
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
	p.out = p.left <= 0 || p.out && p.left < roomLook
}

// again are partitions that the loop has to look at again.
type again struct {
	mu   sync.Mutex
	list []*progress
}

// lookAgain puts a partition on the list.
func (p *progress) lookAgain() {
	if p.listed.Swap(true) {
		return
	}
	a := &p.run.again
	a.mu.Lock()
	a.list = append(a.list, p)
	first := len(a.list) == 1
	a.mu.Unlock()
	if first {
		p.run.wake()
	}
}

func (a *again) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.list) > 0
}

func (a *again) take() []*progress {
	a.mu.Lock()
	list := a.list
	a.list = nil
	a.mu.Unlock()
	for _, p := range list {
		p.listed.Store(false) // before it is looked at
	}
	return list
}
