package arroyo

import (
	"context"
	"errors"
	"slices"
	"time"
)

// drain is the way of some epochs from Revoked to its release.
type drain struct {
	epochs   []*progress
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
	for _, s := range ev.states {
		if p := r.progress[s.Epoch]; p != nil {
			p.beginDrain()
			d.epochs = append(d.epochs, p)
		}
	}
	r.lane.drainBegins()
	// The next owner reads what was not begun: no duplicate, a short drain.
	r.lane.dropQueued(func(p *progress) bool { return slices.Contains(d.epochs, p) })
	if d.last {
		r.lane.requestFinish()
	} else {
		r.lane.requestFlush(d.epochs...)
	}
	r.drains = append(r.drains, d)
}

func (r *run) serveDrains(now time.Time) {
	for _, d := range r.drains {
		if d.finished {
			continue
		}
		settled := !slices.ContainsFunc(d.epochs, func(p *progress) bool {
			return p.unsettled.Load() > 0 && !p.state.fenced.Load()
		})
		if d.last {
			// Close may hand on, or return, what Flush could not.
			settled = r.lane.ended()
		}
		late := !now.Before(d.deadline)
		if !settled && !late && !r.lane.ended() {
			continue
		}
		d.finished = true
		if late {
			r.abandon(d)
		}
		r.commitDrained(d)
	}
}

// commitDrained commits the settled prefix of a drain's epochs, releases it
// and forgets the epochs.
func (r *run) commitDrained(d *drain) {
	offsets := r.toCommit(d.epochs)
	ctx, cancel := context.WithDeadline(r.ctx, d.fencedAt)
	r.commit.start(func() {
		defer cancel()
		err := r.consumer.commit(ctx, offsets, false)
		r.post(func() {
			r.drains = slices.DeleteFunc(r.drains, func(o *drain) bool { return o == d })
			if err != nil {
				r.log.Error("commit at the end of a drain failed; what was done since the last one is done again", "error", err)
				if r.stopping && r.failure == nil {
					r.failure = err
				}
			}
			for _, p := range d.epochs {
				if r.progress[p.state.Epoch] == p {
					r.forget(p)
					attrs := append(epochAttrs(p.state.Epoch), "drained_in", time.Since(d.began))
					if p.known {
						attrs = append(attrs, "offset", p.watermark.offset)
					}
					r.log.Info(logRevoked, attrs...)
				}
			}
			d.release()
		})
	})
}

// abandon tells of a drain that ends with work left.
func (r *run) abandon(d *drain) {
	records := 0
	var partitions []Partition
	for _, p := range d.epochs {
		n := p.pending()
		if n == 0 || r.progress[p.state.Epoch] != p {
			continue
		}
		records += n
		partitions = append(partitions, p.state.Partition)
		offset, _ := p.oldest()
		r.log.Warn("drain is past its deadline; the next owner goes on here",
			append(epochAttrs(p.state.Epoch), "offset", offset, "unsettled", n, "step", r.lane.stepName())...)
	}
	if !d.last {
		return
	}
	if records > 0 {
		left := r.unclean()
		left.Records, left.Partitions = records, partitions
	}
	if !r.lane.ended() {
		r.lane.abandon(ErrAbandoned)
	}
}

// unclean returns the error that says what the last drain left.
func (r *run) unclean() *AbandonedError {
	if r.abandoned == nil {
		r.abandoned = &AbandonedError{}
	}
	r.abandoned.After = time.Since(r.stoppedAt).Round(time.Millisecond)
	return r.abandoned
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
	r.lane.drainBegins()
	r.lane.dropQueued(func(*progress) bool { return true })
	r.consumer.Drain(r.config.drainTimeout - r.reserve()/2)
}

// abandonRest is for a run that is past its end.
func (r *run) abandonRest() {
	if !r.lane.ended() {
		d := &drain{began: r.stoppedAt, last: true}
		for _, p := range r.progress {
			d.epochs = append(d.epochs, p)
		}
		r.abandon(d)
	}
}

// abandonGrace is what user code gets to return once its context has ended.
const abandonGrace = 100 * time.Millisecond

// end waits for the lane, as long as there is time, and says how it all went.
func (r *run) end() error {
	r.lane.requestFinish()
	if !waitFor(context.Background(), r.lane.done, time.Until(r.stopBy)) {
		r.abandonRest()
		if !waitFor(context.Background(), r.lane.done, abandonGrace) {
			r.unclean().Step = r.lane.stepName()
		}
	}
	r.consumer.close(leaveGrace)
	if err := r.lane.failure(); err != nil && r.failure == nil {
		r.failure = err
	}
	switch {
	case r.failure != nil && r.abandoned != nil:
		return errors.Join(r.failure, r.abandoned)
	case r.failure != nil:
		return r.failure
	case r.abandoned != nil:
		return r.abandoned
	}
	return nil
}
