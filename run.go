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
// records to the lanes, starts commits, and watches drains and deadlines. So a
// rebalance is served at once whatever the pipeline does.
type run struct {
	// Held by the loop but for the times when it waits or calls a hook, so
	// that Status can be asked for in any of them. Not of posted and ended.
	state sync.Mutex

	consumer  *Consumer
	processor *Processor
	config    processorConfig
	log       *slog.Logger
	tracker   tracker
	progress  map[Epoch]*progress
	more      []*Fetched // kept for its memory
	drains    []*drain

	shared *recordLane                 // the one lane of all; nil if partitioned
	lanes  map[*recordLane]bool        // whose goroutines have not ended
	old    map[Partition]*recordLane   // of assignments that are over
	waits  map[Partition]*waitsForLane // that came back while their old lane goes on

	letters  *letters           // nil: a rejected message ends the run
	judged   map[*progress]bool // those with letters that wait to be judged
	letterAt time.Time          // when to look at letters again

	full         full
	flushed      bool // whether the shared lane was flushed because it is full
	boundFlushes int64

	ctx      context.Context // of commits
	commit   goroutines      // those that wait for commits
	commitAt time.Time
	commits  bool          // whether a periodic commit is in flight
	overdue  bool          // whether CommitEvery asked for the next one meanwhile
	failing  error         // what the last periodic commit failed with
	failedAt time.Time     // when they began to fail
	logging  chan struct{} // a token, of who hands entries of the commit log to kgo
	logFails bool          // whether the commit log was not written last time
	stallAt  time.Time     // when to look for stalls again
	letGoAt  int64         // how many records were settled when it let go of them last

	stopping  bool
	hurry     bool // Abandon was called
	stoppedAt time.Time
	stopBy    time.Time // when Run has to be over
	failure   error
	abandoned *AbandonedError

	left      int64                  // records that were not done at deadlines
	stepsLeft map[string]*StepStatus // of lanes that have ended
	stepNames []string               // of these, in their order

	alarm   *time.Timer
	alarmAt time.Time

	last Status // once it has ended

	mu     sync.Mutex
	posted []func() // to run on the loop's goroutine
	ended  bool     // nothing is posted any more
}

func newRun(p *Processor) *run {
	r := &run{
		consumer:  p.consumer,
		processor: p,
		config:    p.config,
		log:       p.config.log.With("group", p.consumer.group),
		progress:  make(map[Epoch]*progress),
		lanes:     make(map[*recordLane]bool),
		old:       make(map[Partition]*recordLane),
		waits:     make(map[Partition]*waitsForLane),
		judged:    make(map[*progress]bool),
		full:      newFull(),
		stepsLeft: make(map[string]*StepStatus),
		logging:   make(chan struct{}, 1),
	}
	r.consumer.markersStay = true
	r.tracker.wake = r.consumer.wake
	r.tracker.spanSize = spanSize
	r.tracker.recycle = r.consumer.config.recycle
	if every := p.config.commitEvery; every > 0 {
		r.tracker.spanSize = min(spanSize, every)
		r.tracker.commitAt.Store(int64(every))
	}
	r.tracker.rejected = func(s *span, index int, err error) {
		r.post(func() { r.fail(r.rejection(s, index, err)) })
	}
	if policy := p.config.deadLetter; policy != nil {
		r.letters = newLetters(*policy, r.consumer.group, r.log, r.consumer.wake, func(l *letter, err error) {
			r.post(func() { r.lettersFail(l, err) })
		})
		r.letters.copies = r.tracker.recycle
		r.tracker.rejected = r.letters.rejected
	}
	r.tracker.misused = func(err error) { r.post(func() { r.fail(err) }) }
	if p.shared {
		r.shared = r.newLane(Epoch{}, &r.tracker.watched)
	}
	return r
}

func (r *run) loop(ctx context.Context) error {
	r.state.Lock()
	defer r.state.Unlock()
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(context.Background())
	defer r.commit.wait()
	defer cancel()
	defer context.AfterFunc(ctx, r.consumer.wake)()
	now := time.Now()
	r.commitAt = now.Add(r.config.commitInterval)
	r.stallAt = now.Add(r.stallCheck())
	r.alarm = time.AfterFunc(r.config.commitInterval, r.consumer.wake)
	defer r.alarm.Stop()
	if r.letters != nil {
		go r.letters.serve()
	}
	if r.shared != nil {
		r.startLane(r.shared)
	}

	for {
		room := r.step(ctx)
		ev, err := r.wait(room)
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

// wait waits for the next event, or for a reason to look around.
func (r *run) wait(room bool) (ev Event, err error) {
	r.letGo(func() { ev, err = r.consumer.nextOrWoken(context.Background(), room) })
	return ev, err
}

// letGo calls f, which waits or is the user's, while others may see the state.
func (r *run) letGo(f func()) {
	r.state.Unlock()
	defer r.state.Lock()
	f()
}

// step does what time and the other goroutines ask for. It reports whether
// there is room for more records.
func (r *run) step(ctx context.Context) (room bool) {
	r.runPosted()
	now := time.Now()
	if ctx.Err() != nil {
		r.stop()
		if errors.Is(context.Cause(ctx), ErrAbandoned) {
			r.abandonNow(now)
		}
	}
	select {
	case <-r.processor.abandoned:
		r.stop()
		r.abandonNow(now)
	default:
	}
	if r.stopping && !now.Before(r.stopBy) {
		// The broker or the application did not let it end in time.
		r.abandonRest()
		if r.letters != nil {
			r.letters.cancel() // what fails from here on fails because of that
		}
		r.closeConsumer()
	}
	r.serveLetters(now)
	r.serveWaits(now)
	r.serveDrains(now)
	if due := r.tracker.commitAt.Load(); !now.Before(r.commitAt) || due > 0 && r.tracker.settled.Load() >= due {
		r.commitSettled(now)
	}
	r.letGoOfSettled()
	if !now.Before(r.stallAt) {
		r.stallAt = now.Add(r.stallCheck())
		r.reportStalls(now)
	}
	room = r.hasRoom(now)
	r.setAlarm(now)
	return room
}

// letGoOfSettled lets go of what is settled, once that is a good part of what
// may be in flight. A partition's next records and each commit do so too, but
// where partitions are many the records of a second would stay in memory.
func (r *run) letGoOfSettled() {
	const (
		atLeast      = 20_000 // records
		perPartition = 16     // or it would cost more than it is worth
	)
	settled := r.tracker.settled.Load()
	if settled-r.letGoAt < max(atLeast, int64(perPartition*len(r.progress))) {
		return
	}
	r.letGoAt = settled
	for _, p := range r.progress {
		p.advance()
	}
}

// handle serves one event of the consumer.
func (r *run) handle(ev Event) {
	switch ev := ev.(type) {
	case *Fetched:
		now := time.Now()
		r.fetched(ev, now)
		r.more = r.consumer.morePolled(r.more[:0], r.moreRecords())
		for _, ev := range r.more {
			r.fetched(ev, now)
		}
		clear(r.more)
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

// moreRecords is how many records are taken in small slices before the loop
// looks around again: where there are many partitions, to look around between
// any two slices would cost more than the slices do.
func (r *run) moreRecords() int {
	const most = 1024
	if r.stopping || r.total() >= 1 {
		return 0
	}
	return min(most, r.config.total.records-int(r.tracker.inFlight.Load()))
}

func (r *run) fetched(ev *Fetched, now time.Time) {
	p := r.progress[ev.Epoch]
	if p == nil || p.draining.Load() {
		return // what comes of an epoch that is being drained is its next owner's
	}
	p.advance() // lets go of what is done
	spans := p.append(ev.Records, ev.next, now)
	if len(spans) == 0 {
		return
	}
	p.lane.enqueue(spans)
	if r.shared == nil {
		r.checkFull(p, now)
	}
	r.tell(func(hs hooks) { hs.fetched(ev.Epoch, spans) })
}

func (r *run) assigned(ev *Assigned) {
	now := time.Now()
	for _, s := range ev.states {
		lane := r.shared
		if lane == nil {
			lane = r.laneFor(s, now)
		}
		p := newProgress(s, &r.tracker, lane)
		p.committedAt = now
		if policy := r.config.deadLetter; policy.limited() {
			p.judge = newJudge(policy)
		}
		r.progress[s.Epoch] = p
		if r.shared == nil {
			lane.owner.Store(p)
		}
	}
	r.logEpochs(slog.LevelInfo, "partitions assigned", ev.Epochs)
	r.tell(func(hs hooks) { hs.assigned(ev.Epochs) })
}

func (r *run) lost(ev *Lost) {
	unsettled := 0
	var lost []Epoch
	for _, s := range ev.states {
		if p := r.progress[s.Epoch]; p != nil {
			unsettled += p.pending()
			r.noteLost(p)
			r.forget(p)
		}
		if !s.told { // else it was given up in order, just before
			s.told = true
			lost = append(lost, s.Epoch)
		}
	}
	r.logEpochs(slog.LevelWarn, "partitions lost", lost, "unsettled", unsettled, "reason", ev.Reason)
	r.tell(func(hs hooks) { hs.lost(lost, ev.Reason) })
}

// forget ends what the run knows of an epoch.
func (r *run) forget(p *progress) {
	delete(r.progress, p.state.Epoch)
	r.full.forget(p)
	delete(r.judged, p)
	p.forget()
	if r.shared == nil {
		r.leaveLane(p)
	}
}

// runPosted runs what other goroutines posted.
func (r *run) runPosted() {
	r.mu.Lock()
	posted := r.posted
	r.posted = nil
	r.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// post runs f on the loop's goroutine, soon. It reports false, and f does not
// run, if the loop has ended.
func (r *run) post(f func()) bool {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.posted = append(r.posted, f)
	}
	r.mu.Unlock()
	if !ended {
		r.consumer.wake()
	}
	return !ended
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
	return &StepError{Step: s.owner.lane.stepName(), Epoch: s.owner.state.Epoch, Offset: s.offset(index), Err: err}
}

// setAlarm wakes the loop when something is due next. What was due by now has
// been seen to; it must not stand in the way of what is due later.
func (r *run) setAlarm(now time.Time) {
	next := r.commitAt
	sooner := func(t time.Time) {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	sooner(r.stallAt)
	sooner(r.full.at)
	sooner(r.letterAt)
	if r.stopping {
		sooner(r.stopBy)
	}
	for _, d := range r.drains {
		if !d.finished {
			sooner(d.deadline)
		}
	}
	for _, w := range r.waits {
		sooner(w.deadline)
	}
	if !next.Equal(r.alarmAt) {
		r.alarmAt = next
		r.alarm.Reset(time.Until(next))
	}
}

// logEpochs tells of an event in one line, and of each partition in detail.
func (r *run) logEpochs(level slog.Level, text string, epochs []Epoch, attrs ...any) {
	if len(epochs) == 0 {
		return
	}
	ps := make([]Partition, len(epochs))
	for i, e := range epochs {
		ps[i] = e.Partition
	}
	attrs = append([]any{"count", len(ps), "partitions", partitionList(ps)}, attrs...)
	r.log.Log(context.Background(), level, text, attrs...)
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		for _, e := range epochs {
			r.log.Debug(text, epochAttrs(e)...)
		}
	}
}

func epochAttrs(e Epoch) []any {
	return []any{"topic", e.Topic, "partition", e.Number, "epoch", e.N}
}
