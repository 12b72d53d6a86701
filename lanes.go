package arroyo

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// waitsForLane is a partition that came back while its old lane is still
// inside user code.
type waitsForLane struct {
	state    *epochState
	lane     *recordLane // to start
	old      *recordLane
	began    time.Time
	deadline time.Time
}

// newLane makes the lane of one epoch, or of all (the zero Epoch).
func (r *run) newLane(of Epoch, watched *atomic.Bool) *recordLane {
	events := laneEvents{
		wake:      r.consumer.wake,
		failed:    func(err error) { r.post(func() { r.fail(err) }) },
		ended:     func(l *recordLane) { r.post(func() { r.laneEnded(l) }) },
		submitted: r.submitted(),
	}
	l := newRecordLane(watched, events)
	l.of = of
	l.unmade = !r.processor.shared
	l.build = func() (Strategy[*kgo.Record], error) { return r.processor.build(l.ctx, of) }
	return l
}

func (r *run) startLane(l *recordLane) {
	r.lanes[l] = true
	go l.serve()
}

// laneFor makes the lane of an epoch and starts it, unless the partition's old
// one has to end first.
func (r *run) laneFor(s *epochState, now time.Time) *recordLane {
	l := r.newLane(s.Epoch, new(atomic.Bool))
	old := r.old[s.Partition]
	if old == nil || old.ended() {
		r.startLane(l)
		return l
	}
	r.waits[s.Partition] = &waitsForLane{
		state:    s,
		lane:     l,
		old:      old,
		began:    now,
		deadline: now.Add(r.config.drainTimeout),
	}
	r.consumer.setPaused([]*epochState{s}, pausedForLane, true)
	r.log.Warn("partition came back while user code of its last assignment goes on; it waits",
		append(epochAttrs(s.Epoch), "step", old.stepName())...)
	return l
}

// leaveLane is for the end of an epoch: its lane has nothing more to do.
func (r *run) leaveLane(p *progress) {
	if w := r.waits[p.state.Partition]; w != nil && w.lane == p.lane {
		delete(r.waits, p.state.Partition)
		p.lane.dismiss()
		return
	}
	p.lane.abandon(ErrFenced)
	if !p.lane.ended() {
		r.old[p.state.Partition] = p.lane
	}
}

// laneEnded starts what waited for a lane to end.
func (r *run) laneEnded(l *recordLane) {
	delete(r.lanes, l)
	r.keepSteps(l)
	p := l.of.Partition
	if r.old[p] == l {
		delete(r.old, p)
	}
	w := r.waits[p]
	if w == nil || w.old != l {
		return
	}
	delete(r.waits, p)
	if p := r.progress[w.state.Epoch]; p == nil || p.draining.Load() {
		w.lane.dismiss() // it is being given up again, and nothing was begun
		return
	}
	r.startLane(w.lane)
	r.consumer.setPaused([]*epochState{w.state}, pausedForLane, false)
}

// isWaiting reports whether a partition's lane was not started yet.
func (r *run) isWaiting(p *progress) bool {
	w := r.waits[p.state.Partition]
	return w != nil && w.lane == p.lane
}

// serveWaits gives up on user code that does not return.
func (r *run) serveWaits(now time.Time) {
	for p, w := range r.waits {
		if !now.Before(w.deadline) && !r.stopping {
			r.fail(&StuckError{Step: w.old.stepName(), Partition: p, After: now.Sub(w.began).Round(time.Millisecond)})
		}
	}
}
