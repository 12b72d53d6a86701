package arroyo

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// drain is the way of some epochs from Revoked to its release.
type drain struct {
	epochs   []*progress
	settled  int // how many of them, from the first on, have nothing left to do
	began    time.Time
	deadline time.Time // of the work
	fencedAt time.Time // when the consumer stops waiting for the release
	release  func()
	last     bool // the run ends with it
	finished bool // the work; the commit is under way
}

// reserve is what is kept of a drain's time for its last commit.
func (r *run) reserve() time.Duration {
	return min(commitReserve, r.config.drainTimeout/5)
}

func (r *run) revoked(ev *Revoked) {
	if r.consumer.drains() {
		r.stop() // the user drained it
	}
	now := time.Now()
	d := &drain{
		began:    now,
		fencedAt: ev.Deadline,
		release:  ev.Hold(),
		last:     r.stopping,
	}
	d.deadline = now.Add(r.config.drainTimeout - r.reserve())
	if latest := ev.Deadline.Add(-r.reserve() / 2); latest.Before(d.deadline) {
		d.deadline = latest
	}
	if r.hurry {
		d.deadline = now
	}
	for _, s := range ev.states {
		if p := r.progress[s.Epoch]; p != nil {
			r.full.forget(p)
			p.beginDrain()
			d.epochs = append(d.epochs, p)
		}
	}
	if r.shared == nil {
		for _, p := range d.epochs {
			r.drainLane(p.lane)
			p.lane.requestFinish()
		}
	} else {
		r.drainLane(r.shared)
		if d.last {
			r.shared.requestFinish()
		} else if len(d.epochs) > 0 {
			r.shared.requestFlush(d.epochs...)
		}
	}
	r.drains = append(r.drains, d)
}

// drainLane drops what is queued and was never submitted of the epochs that are
// being drained: the next owner reads it. No duplicate, and a short drain.
func (r *run) drainLane(l *recordLane) {
	l.drainBegins()
	l.dropQueued(func(p *progress) bool { return p.draining.Load() })
}

func (r *run) serveDrains(now time.Time) {
	for _, d := range r.drains {
		if d.finished {
			continue
		}
		late := !now.Before(d.deadline)
		if !late && !r.drained(d) {
			continue
		}
		d.finished = true
		if late {
			r.abandon(d)
		}
		r.commitDrained(d)
	}
}

// drained reports whether nothing is left to do for a drain.
func (r *run) drained(d *drain) bool {
	if d.last && r.shared != nil && !r.shared.ended() {
		return false // Close may hand on, or return, what Flush could not
	}
	// What is done stays done, so each is looked at once.
	for ; d.settled < len(d.epochs); d.settled++ {
		p := d.epochs[d.settled]
		switch {
		case p.state.fenced.Load(), r.isWaiting(p):
		case p.lane.ended() && r.noLetters(p):
		case r.shared != nil && p.inFlight.Load() == 0:
		default:
			return false
		}
	}
	return true
}

// commitDrained commits the settled prefix of a drain's epochs, releases it
// and forgets the epochs.
func (r *run) commitDrained(d *drain) {
	offsets := r.toCommit(d.epochs, time.Now())
	entries := r.logEntries(offsets)
	ctx, cancel := context.WithDeadline(r.ctx, d.fencedAt)
	r.commit.start(func() {
		defer cancel()
		err := r.sendCommit(ctx, offsets, entries)
		r.post(func() {
			r.drains = slices.DeleteFunc(r.drains, func(o *drain) bool { return o == d })
			if err != nil {
				r.log.Error("commit at the end of a drain failed; what was done since the last one is done again", "error", err)
				// That all were lost while it waited is told of below.
				if r.stopping && r.failure == nil && !isNotHeld(err) {
					r.failure = err
				}
			}
			var released []Epoch
			for _, p := range d.epochs {
				if r.progress[p.state.Epoch] != p {
					continue
				}
				if p.state.fenced.Load() { // a Lost event tells of it
					if at, sent := offsets[p.state]; !sent || !r.consumer.hasCommitted(p.state, at) {
						r.noteLost(p)
					}
				} else {
					p.state.told = true
					released = append(released, p.state.Epoch)
				}
				r.forget(p)
			}
			took := time.Since(d.began)
			r.logEpochs(slog.LevelInfo, "partitions revoked", released, "drained_in", took)
			r.tell(func(hs hooks) { hs.revoked(released, took) })
			d.release()
		})
	})
}

func isNotHeld(err error) bool {
	_, ok := errors.AsType[*NotHeldError](err)
	return ok
}

// abandon tells of a drain that ends with work left.
func (r *run) abandon(d *drain) {
	for _, p := range d.epochs {
		n := p.pending()
		if n == 0 || r.progress[p.state.Epoch] != p {
			continue
		}
		if !p.abandoned {
			p.abandoned = true
			r.left += int64(n)
			offset, _, _ := p.oldest()
			r.log.Warn("drain is past its deadline; the next owner goes on here",
				append(epochAttrs(p.state.Epoch), "offset", offset, "unsettled", n, "step", p.oldestStep())...)
		}
		if r.stopping && !p.unclean {
			p.unclean = true
			left := r.unclean()
			left.Records += n
			left.Partitions = append(left.Partitions, p.state.Partition)
			r.lettersLeft()
		}
	}
	if d.last {
		r.abandonLanes()
	}
}

func (r *run) abandonLanes() {
	for l := range r.lanes {
		if !l.ended() {
			l.abandon(ErrAbandoned)
		}
	}
}

// abandonNow makes everything that is being drained be past its deadline.
func (r *run) abandonNow(now time.Time) {
	if r.hurry {
		return
	}
	r.hurry = true
	r.stopBy = minTime(r.stopBy, now.Add(r.reserve()))
	for _, d := range r.drains {
		d.deadline = minTime(d.deadline, now)
	}
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// unclean returns the error that says what the last drain left.
func (r *run) unclean() *AbandonedError {
	if r.abandoned == nil {
		r.abandoned = &AbandonedError{}
	}
	r.abandoned.After = time.Since(r.stoppedAt).Round(time.Millisecond)
	return r.abandoned
}

// noteLost notes a partition that was lost in the last drain, with work that is
// not committed.
func (r *run) noteLost(p *progress) {
	p.advance()
	if r.stopping && !p.unclean && p.known && (p.watermark.offset > p.committed || p.pending() > 0) {
		left := r.unclean()
		left.Lost = append(left.Lost, p.state.Partition)
	}
}

// stop begins the end of the run.
func (r *run) stop() {
	if r.stopping {
		return
	}
	r.stopping = true
	r.stoppedAt = time.Now()
	r.stopBy = r.stoppedAt.Add(r.config.drainTimeout)
	for _, p := range r.progress {
		p.beginDrain()
	}
	for l := range r.lanes {
		r.drainLane(l)
	}
	for _, w := range r.waits {
		r.drainLane(w.lane)
	}
	r.consumer.Drain(r.config.drainTimeout - r.reserve()/2)
}

// abandonRest is for a run that is past its end.
func (r *run) abandonRest() {
	d := &drain{began: r.stoppedAt, last: true}
	d.epochs = slices.AppendSeq(d.epochs, maps.Values(r.progress))
	r.abandon(d)
}

// abandonGrace is what user code gets to return once its context has ended.
const abandonGrace = 100 * time.Millisecond

// end waits for the lanes, as long as there is time, and says how it all went.
func (r *run) end() error {
	if r.letters != nil {
		defer r.letters.stop()
	}
	lanes := slices.Collect(maps.Keys(r.lanes))
	for _, l := range lanes {
		l.requestFinish()
	}
	stopBy := r.stopBy
	if r.hurry {
		stopBy = time.Now()
	}
	if !r.waitForLanes(lanes, time.Until(stopBy)) {
		r.abandonRest()
		if !r.waitForLanes(lanes, abandonGrace) {
			for _, l := range lanes {
				if !l.ended() {
					r.unclean().Step = l.stepName()
				}
			}
		}
	}
	for p, w := range r.waits {
		delete(r.waits, p)
		w.lane.dismiss()
	}
	if r.letters != nil {
		ended := false
		r.letGo(func() { ended = r.letters.end(abandonGrace) })
		if !ended {
			r.unclean().Step = "DeadLetterPolicy.Producer"
		}
	}
	r.closeConsumer()
	r.runPosted()
	r.abandonRest() // of a consumer that was closed, or drained in too short a time
	for _, p := range r.progress {
		r.noteLost(p)
	}
	for _, l := range lanes {
		if err := l.failure(); err != nil && r.failure == nil {
			r.failure = err
		}
	}
	var err error
	switch {
	case r.failure != nil && r.abandoned != nil:
		err = errors.Join(r.failure, r.abandoned)
	case r.failure != nil:
		err = r.failure
	case r.abandoned != nil:
		err = r.abandoned
	}
	r.close(err)
	return err
}

func (r *run) closeConsumer() {
	r.letGo(func() { r.consumer.close(leaveGrace) })
}

// waitForLanes waits until all lanes have ended; it reports false if they do
// not within d.
func (r *run) waitForLanes(lanes []*recordLane, d time.Duration) bool {
	r.state.Unlock()
	defer r.state.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for _, l := range lanes {
		select {
		case <-l.done:
		case <-ctx.Done():
			return l.ended()
		}
	}
	return true
}
