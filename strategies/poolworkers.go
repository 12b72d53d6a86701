package strategies

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arroyo-go/arroyo"
)

// workers are the goroutines of a pool. They take messages in runs, so that what
// it costs to hand them over is paid per run: as many as take about runGoal, so
// one at a time if each takes long.
type workers[In, Out any] struct {
	perform func(*run[In, Out]) error
	deliver func(context.Context) error // looks at what is done, on the lane
	lane    *arroyo.Lane
	max     int // how many there may be
	cores   int
	wake    chan struct{} // a token for each idle one that has to look again
	ready   chan struct{} // a token for the lane, while it waits

	mu      sync.Mutex
	source  source[In, Out]
	started int
	idle    int // waiting, without a token
	waking  int // started or given a token, but not looking yet
	closed  bool
	size    int // of the next run
	active  []*run[In, Out]
	free    []*run[In, Out]
	done    []*run[In, Out] // for the lane
	skipped []ref[In, Out]  // of the run that is being made
	skip    func(ref[In, Out]) bool
	told    bool // that it has to look at them
	waiting bool // the lane, for ready

	signalled bool // the lane, by what a worker does now

	watchdog *time.Timer
	armed    bool
}

// run is what a worker has taken.
type run[In, Out any] struct {
	refs   []ref[In, Out]
	began  time.Time
	cursor atomic.Uint64 // the next message to begin << 32 | the end
	// Under the mutex: refs[from:end] are its own. Those before are handed in
	// already, those behind were put back.
	from, end int
	at        int  // of active
	late      bool // the watchdog has seen it before
}

const (
	runGoal = 100 * time.Microsecond
	maxRun  = 256
	// Messages of a run whose worker is stuck go to others after one to two
	// of these.
	watchEvery = time.Millisecond
)

// claim returns the index of the next message to work on.
func (r *run[In, Out]) claim() (i int, ok bool) {
	c := r.cursor.Add(1 << 32)
	next, end := c>>32, c&(1<<32-1)
	return int(next) - 1, next <= end
}

// cut makes what was not claimed yet be nobody's, and returns where that
// begins; the end, if there is nothing.
func (r *run[In, Out]) cut() (from int) {
	for {
		c := r.cursor.Load()
		next, end := c>>32, c&(1<<32-1)
		if next >= end {
			return int(end)
		}
		if r.cursor.CompareAndSwap(c, next<<32|next) {
			return int(next)
		}
	}
}

// push gives chunks to the workers.
func (w *workers[In, Out]) push(c *chunk[In, Out]) {
	w.mu.Lock()
	w.source.push(c)
	start := w.rouse()
	w.mu.Unlock()
	w.start(start)
}

// rouse gives work to as many workers as there is work for. The mutex is held;
// the caller starts those whose number it returns afterwards.
func (w *workers[In, Out]) rouse() (start int) {
	if w.closed {
		return 0
	}
	want := (w.source.ready() + w.size - 1) / w.size
	for w.waking < want {
		switch {
		case w.idle > 0:
			w.idle--
			w.wake <- struct{}{}
		case w.started < w.max:
			w.started++
			start++
		default:
			return start
		}
		w.waking++
	}
	return start
}

func (w *workers[In, Out]) start(n int) {
	for range n {
		w.lane.Go(w.work)
	}
}

// work is a worker's goroutine.
func (w *workers[In, Out]) work(ctx context.Context) error {
	var r *run[In, Out]
	for ctx.Err() == nil {
		if r = w.next(ctx, r); r == nil {
			break
		}
		if err := w.perform(r); err != nil {
			return err
		}
	}
	return nil
}

// next hands in a run that is done and waits for another one. It returns nil at
// the end.
func (w *workers[In, Out]) next(ctx context.Context, done *run[In, Out]) *run[In, Out] {
	now := time.Now()
	w.mu.Lock()
	if done == nil {
		w.waking--
	} else {
		w.finish(done, now)
	}
	for !w.closed {
		r := w.take(now)
		if r == nil {
			w.idle++
		}
		start, post := w.rouse(), w.tell()
		yield := (w.signalled || post) && w.size > 1
		w.signalled = false
		w.mu.Unlock()
		w.start(start)
		if post {
			w.lane.Post(w.deliver)
		}
		if r != nil {
			if yield { // or the lane runs when the others have nothing left to do
				runtime.Gosched()
			}
			return r
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil
		}
		now = time.Now()
		w.mu.Lock()
		w.waking--
	}
	w.mu.Unlock()
	return nil
}

// take makes a run of what there is, or returns nil. The mutex is held.
func (w *workers[In, Out]) take(now time.Time) *run[In, Out] {
	ready := w.source.ready()
	if ready == 0 {
		return nil
	}
	r := w.newRun()
	// Not more than a fair share, unless that is not worth the effort.
	share := max(ready/min(w.max, w.cores), 8)
	r.refs = w.source.take(min(w.size, share), r.refs[:0], w.skip)
	if len(w.skipped) > 0 {
		w.handIn(w.skipped)
		w.skipped = w.skipped[:0]
	}
	if len(r.refs) == 0 {
		w.free = append(w.free, r)
		return nil
	}
	r.began, r.late = now, false
	r.from, r.end, r.at = 0, len(r.refs), len(w.active)
	r.cursor.Store(uint64(r.end))
	w.active = append(w.active, r)
	if r.end > 1 {
		w.arm()
	}
	if w.waiting && !w.full() {
		w.signal()
	}
	return r
}

// look is what the source asks of a message that it gives to a worker. The mutex
// is held.
func (w *workers[In, Out]) look(r ref[In, Out]) (skip bool) {
	if r.skip() {
		w.skipped = append(w.skipped, r)
		return true
	}
	r.begin()
	return false
}

func (w *workers[In, Out]) newRun() *run[In, Out] {
	n := len(w.free)
	if n == 0 {
		return new(run[In, Out])
	}
	r := w.free[n-1]
	w.free = w.free[:n-1]
	return r
}

// finish takes a run back. The mutex is held.
func (w *workers[In, Out]) finish(r *run[In, Out], now time.Time) {
	last := len(w.active) - 1
	w.active[r.at] = w.active[last]
	w.active[r.at].at = r.at
	w.active[last] = nil
	w.active = w.active[:last]

	switch took := now.Sub(r.began); {
	case took > 2*runGoal:
		w.size = max(1, int(int64(r.end)*int64(runGoal)/int64(took)))
	case took < runGoal/2 && r.end == w.size:
		w.size = min(2*w.size, maxRun)
	}
	w.source.finish(r.refs[:r.end], r.from, r.end)
	w.done = append(w.done, r)
}

// tell makes the lane look at what is done: it returns true if the caller has
// to post that, after it has released the mutex, which is held.
func (w *workers[In, Out]) tell() (post bool) {
	if len(w.done) == 0 || w.told {
		return false
	}
	w.told = true
	if w.waiting {
		w.signal()
		return false
	}
	return true
}

// letEnd is called by the lane when it was woken. Tasks that wait end together,
// as their timers do, but come one after the other: it is cheaper to look at
// them once they all have.
func (w *workers[In, Out]) letEnd() {
	w.mu.Lock()
	wait := w.size == 1
	w.mu.Unlock()
	if wait {
		runtime.Gosched()
	}
}

func (w *workers[In, Out]) signal() {
	w.signalled = true
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// full reports whether there is as much to do as the workers should have before
// them: two messages each, and for those that can compute at the same time two
// runs. The mutex is held.
func (w *workers[In, Out]) full() bool {
	return w.source.ready() > 2*(w.max+min(w.max, w.cores)*(w.size-1))
}

// collect returns the runs that are done, in memory that is exchanged for the
// last ones'.
func (w *workers[In, Out]) collect(last []*run[In, Out]) []*run[In, Out] {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, last...)
	clear(last)
	done := w.done
	w.done, w.told = last[:0], false
	return done
}

// await begins (true) or ends the lane's waiting for w.ready. It reports
// whether there is a reason to wait.
func (w *workers[In, Out]) await(begin, whenFull bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = begin && len(w.done) == 0 && (!whenFull || w.full())
	return w.waiting
}

// poke makes the lane look, from any goroutine.
func (w *workers[In, Out]) poke() {
	w.mu.Lock()
	waiting := w.waiting
	if waiting {
		w.signal()
	}
	w.mu.Unlock()
	if !waiting {
		w.lane.Post(w.deliver)
	}
}

// remove takes out what no worker has begun and for which f is true.
func (w *workers[In, Out]) remove(f func(ref[In, Out]) bool) []ref[In, Out] {
	w.mu.Lock()
	for _, r := range w.active {
		w.split(r)
	}
	removed := w.source.remove(f, nil)
	start := w.rouse()
	w.mu.Unlock()
	w.start(start)
	return removed
}

// split leaves a run nothing but the message that its worker is at: what is
// before that is handed in, and what was not begun is put back. The mutex is
// held.
func (w *workers[In, Out]) split(r *run[In, Out]) {
	from := r.cut()
	w.source.putBack(r.refs[:r.end], from)
	r.end = from
	// A claim says that the message before is done.
	at := int(r.cursor.Load()>>32) - 1
	if at <= r.from || at >= r.end {
		return
	}
	w.handIn(r.refs[r.from:at])
	w.source.finish(r.refs[:r.end], r.from, at)
	r.from = at
}

// handIn gives the lane messages that are no longer part of a run. The mutex is
// held.
func (w *workers[In, Out]) handIn(refs []ref[In, Out]) {
	r := w.newRun()
	r.refs = append(r.refs[:0], refs...)
	r.from, r.end = 0, len(r.refs)
	w.done = append(w.done, r)
}

// arm sets the watchdog: a message that takes long is not to hold up those that
// its worker has taken together with it. The mutex is held.
func (w *workers[In, Out]) arm() {
	switch {
	case w.armed, w.closed:
		return
	case w.watchdog == nil:
		w.watchdog = time.AfterFunc(watchEvery, w.watch)
	default:
		w.watchdog.Reset(watchEvery)
	}
	w.armed = true
}

func (w *workers[In, Out]) watch() {
	w.mu.Lock()
	w.armed = false
	for _, r := range w.active {
		switch {
		case r.end-r.from == 1:
		case r.late:
			w.split(r)
		default:
			r.late = true
			w.arm()
		}
	}
	start, post := w.rouse(), w.tell()
	w.mu.Unlock()
	w.start(start)
	if post {
		w.lane.Post(w.deliver)
	}
}

// close ends the workers, those that work once they are done.
func (w *workers[In, Out]) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for ; w.idle > 0; w.idle-- {
		w.waking++
		w.wake <- struct{}{}
	}
	if w.watchdog != nil {
		w.watchdog.Stop()
	}
}
