package arroyo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// run is one Run of a Processor. Its loop is one goroutine that never runs
// user code and never waits for it: it takes the consumer's events, hands
// records to the lane, starts commits, and watches drains and deadlines. So a
// rebalance is served at once whatever the pipeline does.
type run struct {
	consumer *Consumer
	config   processorConfig
	log      *slog.Logger
	lane     *recordLane
	tracker  tracker
	progress map[Epoch]*progress
	drains   []*drain

	ctx      context.Context // of commits
	commit   goroutines      // those that wait for commits
	commitAt time.Time
	commits  bool // whether a periodic commit is in flight
	failing  bool // whether the last periodic commit failed
	flushed  bool // whether the lane was flushed because the bound is met

	stopping  bool
	stoppedAt time.Time
	stopBy    time.Time // when Run has to be over
	failure   error
	abandoned *AbandonedError

	alarm   *time.Timer
	alarmAt time.Time

	mu     sync.Mutex
	posted []func() // to run on the loop's goroutine
}

func newRun(p *Processor) *run {
	r := &run{
		consumer: p.consumer,
		config:   p.config,
		log:      p.config.log.With("group", p.consumer.group),
		progress: make(map[Epoch]*progress),
	}
	r.consumer.markersStay = true
	r.tracker.wake = r.consumer.wake
	r.tracker.rejected = func(s *span, index int, err error) {
		r.post(func() { r.fail(r.rejection(s, index, err)) })
	}
	r.tracker.misused = func(err error) { r.post(func() { r.fail(err) }) }
	r.lane = newRecordLane(p.pipeline, &r.tracker)
	return r
}

func (r *run) loop(ctx context.Context) error {
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(context.Background())
	defer r.commit.wait()
	defer cancel()
	defer context.AfterFunc(ctx, r.consumer.wake)()
	r.commitAt = time.Now().Add(r.config.commitInterval)
	r.alarm = time.AfterFunc(r.config.commitInterval, r.consumer.wake)
	defer r.alarm.Stop()
	go r.lane.serve()

	for {
		r.step(ctx)
		ev, err := r.consumer.nextOrWoken(context.Background(), r.hasRoom())
		if errors.Is(err, errWoken) {
			continue
		}
		if err != nil { // closed, by stopBy or by the user
			if !r.stopping {
				r.fail(err)
			}
			break
		}
		if _, ok := ev.(*Closed); ok {
			r.stop() // if it was the user who drained
			break
		}
		r.handle(ev)
	}
	return r.end()
}

// step does what time and the other goroutines ask for.
func (r *run) step(ctx context.Context) {
	now := time.Now()
	r.mu.Lock()
	posted := r.posted
	r.posted = nil
	r.mu.Unlock()
	for _, f := range posted {
		f()
	}
	if err := r.lane.failure(); err != nil {
		r.fail(err)
	}
	if ctx.Err() != nil {
		r.stop()
	}
	if r.stopping && !now.Before(r.stopBy) {
		// The broker or the application did not let it end in time.
		r.abandonRest()
		r.consumer.close(leaveGrace)
	}
	r.serveDrains(now)
	if !now.Before(r.commitAt) {
		r.commitAt = now.Add(r.config.commitInterval)
		r.commitSettled()
	}
	r.flushAtBound()
	r.setAlarm()
}

// handle serves one event of the consumer.
func (r *run) handle(ev Event) {
	switch ev := ev.(type) {
	case *Fetched:
		// What comes of an epoch that is being drained is its next owner's.
		if p := r.progress[ev.Epoch]; p != nil && !p.draining.Load() {
			p.advance() // lets go of what is done
			if spans := p.append(ev.Records, ev.next); len(spans) > 0 {
				r.lane.enqueue(spans)
			}
		}
	case *Assigned:
		r.assigned(ev)
	case *Revoked:
		r.revoked(ev)
	case *Lost:
		r.lost(ev)
	case *Failed:
		if ev.Fatal {
			r.fail(ev.Err)
		} else {
			r.log.Warn("consumer failure; it goes on trying", "error", ev.Err)
		}
	}
}

func (r *run) assigned(ev *Assigned) {
	for _, s := range ev.states {
		r.progress[s.Epoch] = newProgress(s, &r.tracker, &r.lane.Lane)
		r.log.Info(logAssigned, epochAttrs(s.Epoch)...)
	}
}

func (r *run) lost(ev *Lost) {
	for _, e := range ev.Epochs {
		if p := r.progress[e]; p != nil {
			r.log.Warn(logLost, append(epochAttrs(e), "unsettled", p.pending(), "reason", ev.Reason)...)
			if p.advance(); r.stopping && p.known && (p.watermark.offset > p.committed || p.pending() > 0) {
				left := r.unclean()
				left.Lost = append(left.Lost, e.Partition)
			}
			r.forget(p)
		}
	}
}

func (r *run) forget(p *progress) {
	delete(r.progress, p.state.Epoch)
	p.forget()
}

// hasRoom reports whether more records may be taken.
func (r *run) hasRoom() bool {
	room := r.tracker.inFlight.Load() < int64(r.config.maxInFlight)
	if watch := !room || len(r.drains) > 0; watch != r.tracker.watched.Load() {
		r.tracker.watched.Store(watch)
		// What settled between the two looks did not wake us.
		room = r.tracker.inFlight.Load() < int64(r.config.maxInFlight)
		if len(r.drains) > 0 {
			r.consumer.wake()
		}
	}
	if room {
		r.flushed = false
	}
	return room && !r.stopping
}

// flushAtBound makes the steps let go of what they hold back when nothing else
// can: a batch that is larger than the bound would wait for ever.
func (r *run) flushAtBound() {
	if !r.flushed && !r.hasRoom() && !r.stopping && r.lane.isIdle() {
		r.flushed = true
		r.lane.requestFlush()
	}
}

// post runs f on the loop's goroutine, soon.
func (r *run) post(f func()) {
	r.mu.Lock()
	r.posted = append(r.posted, f)
	r.mu.Unlock()
	r.consumer.wake()
}

// fail ends the run because of its first failure.
func (r *run) fail(err error) {
	if r.failure == nil {
		r.failure = err
		r.log.Error("the run ends", "error", err)
	}
	r.stop()
}

func (r *run) rejection(s *span, index int, err error) error {
	err = fmt.Errorf("%w: %w", err, ErrNoDeadLetter)
	if step := (*StepError)(nil); errors.As(err, &step) {
		return err
	}
	return &StepError{Step: r.lane.stepName(), Epoch: s.owner.state.Epoch, Offset: s.records[index].Offset, Err: err}
}

// setAlarm wakes the loop when something is due next.
func (r *run) setAlarm() {
	next := r.commitAt
	if r.stopping && r.stopBy.Before(next) {
		next = r.stopBy
	}
	for _, d := range r.drains {
		if !d.finished && d.deadline.Before(next) {
			next = d.deadline
		}
	}
	if !next.Equal(r.alarmAt) {
		r.alarmAt = next
		r.alarm.Reset(time.Until(next))
	}
}

// What the log says of a partition's way; Logger promises these texts.
const (
	logAssigned = "partition assigned"
	logRevoked  = "partition revoked"
	logLost     = "partition lost"
)

func epochAttrs(e Epoch) []any {
	return []any{"topic", e.Topic, "partition", e.Number, "epoch", e.N}
}
