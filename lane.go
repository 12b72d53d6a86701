package arroyo

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Lane is a goroutine that runs steps, one call at a time. A step reaches the
// lane that calls it with LaneOf. So it needs neither locks nor timers of its
// own, and what fails asynchronously has a way out.
type Lane struct {
	ctx     context.Context // outlives epochs; ends when the lane is abandoned
	abandon context.CancelCauseFunc
	failed  func(error) // takes a failure of what the lane runs
	helpers *goroutines // shared with its forks
	parent  *Lane       // of a fork
	forker  *Step       // the step that made the fork
	base    *Lane       // of a branch's view of a lane, which has a ctx of its own and no more
	of      Epoch       // of a lane that serves one epoch
	wake    chan struct{}
	step    atomic.Pointer[Step] // the one that works now, or did last
	busy    atomic.Bool          // inside a step

	mu      sync.Mutex
	due     []laneJob
	dueHead int           // of due
	drains  chan struct{} // closed, and another one made, when a drain begins
	forks   []*Lane
	steps   []*Step          // that it ran, its forks' too
	views   map[string]*Lane // of branches, by their path
}

type laneJob struct {
	run   func(context.Context) error
	ctx   context.Context
	timer *laneTimer // nil for Post
}

type laneTimer struct {
	timer   *time.Timer
	stopped bool // only the lane's goroutine touches it
}

type laneKey struct{}

// LaneOf returns the lane that runs the step to which ctx was passed. It
// panics if there is none: then the step is not run by a processor.
func LaneOf(ctx context.Context) *Lane {
	l, ok := ctx.Value(laneKey{}).(*Lane)
	if !ok {
		panic("arroyo: LaneOf: this context is not one that a processor passes to a step's methods")
	}
	return l
}

func (l *Lane) init(parent context.Context, failed func(error), helpers *goroutines) {
	l.ctx, l.abandon = context.WithCancelCause(context.WithValue(parent, laneKey{}, l))
	l.failed = failed
	l.helpers = helpers
	l.wake = make(chan struct{}, 1)
	l.drains = make(chan struct{})
}

// Context returns the lane's context. It outlives epochs, so steps that mix
// partitions work under it, and ends when the lane's work is abandoned.
func (l *Lane) Context() context.Context { return l.ctx }

// After runs f on the lane's goroutine once d has passed, not before what that
// goroutine does then is done. It does not run after stop, nor after the lane
// has ended. Its error or panic counts as Submit's. After and stop are called
// on the lane's goroutine.
func (l *Lane) After(d time.Duration, f func(context.Context) error) (stop func()) {
	t := new(laneTimer)
	t.timer = time.AfterFunc(d, func() { l.enqueueJob(laneJob{f, l.ctx, t}) })
	return func() {
		t.stopped = true
		t.timer.Stop()
	}
}

// Post runs f on the lane's goroutine, behind what that does now and what was
// posted before. It may be called from any goroutine and does not wait. f does
// not run after the lane has ended. Its error or panic counts as Submit's.
func (l *Lane) Post(f func(context.Context) error) { l.enqueueJob(laneJob{run: f, ctx: l.ctx}) }

func (l *Lane) enqueueJob(job laneJob) {
	l = l.whole()
	l.mu.Lock()
	l.due = append(l.due, job)
	l.mu.Unlock()
	l.signal()
}

// Go runs f on a goroutine that the lane owns: the run ends with its error or
// panic, and the lane ends after it. It has to return when ctx, which is the
// lane's, ends.
func (l *Lane) Go(f func(ctx context.Context) error) {
	ctx := l.ctx
	l = l.whole()
	l.helpers.start(func() {
		if err := l.guard(func() error { return f(ctx) }); err != nil && (!l.isAbandoned() || isPanic(err)) {
			l.failed(l.located(err, nil))
		}
	})
}

// isAbandoned reports whether the lane's context has ended, or is about to: a
// fork's ends a moment after that of the lane that it was made of, under which
// its steps may work, too.
func (l *Lane) isAbandoned() bool {
	for ; l != nil; l = l.parent {
		if l.ctx.Err() != nil {
			return true
		}
	}
	return false
}

// Fork returns a lane for the steps behind a step that has a goroutine of its
// own to call them. That goroutine, one started with Go, calls Serve. The fork
// fails and is abandoned together with l.
func (l *Lane) Fork() *Lane {
	ctx := l.ctx
	l = l.whole()
	f := &Lane{parent: l, forker: l.step.Load(), of: l.of}
	f.init(ctx, l.failed, l.helpers)
	l.mu.Lock()
	l.forks = append(l.forks, f)
	l.mu.Unlock()
	return f
}

// In returns ctx with the lane in it, for calls of steps that the lane runs.
func (l *Lane) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, laneKey{}, l)
}

// Serve is a fork's goroutine: it runs jobs, and what After and Post are due,
// until jobs is closed or the lane is abandoned, whose cause it then returns.
// It returns the first error or panic of a job, with the step that failed.
func (l *Lane) Serve(jobs <-chan func() error) error {
	for l.ctx.Err() == nil {
		if err := l.runDue(); err != nil {
			return l.located(err, nil)
		}
		select {
		case job, ok := <-jobs:
			if !ok {
				return nil
			}
			if err := l.call(job); err != nil {
				return l.located(err, nil)
			}
		case <-l.wake:
		case <-l.ctx.Done():
		}
	}
	return context.Cause(l.ctx)
}

// runDue runs what is due now.
func (l *Lane) runDue() error {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		job, ok := l.takeJob()
		l.mu.Unlock()
		if !ok {
			return nil
		}
		if err := l.runJob(job); err != nil {
			return err
		}
	}
	return nil
}

// takeJob takes the first job that is due. Lane.mu is held.
func (l *Lane) takeJob() (job laneJob, ok bool) {
	if l.dueHead == len(l.due) {
		return laneJob{}, false
	}
	job = l.due[l.dueHead]
	l.due[l.dueHead] = laneJob{}
	if l.dueHead++; l.dueHead > len(l.due)/2 {
		n := copy(l.due, l.due[l.dueHead:])
		clear(l.due[n:])
		l.due, l.dueHead = l.due[:n], 0
	}
	return job, true
}

func (l *Lane) runJob(job laneJob) error {
	if job.timer != nil && job.timer.stopped {
		return nil
	}
	return l.call(func() error { return job.run(job.ctx) })
}

// drainBegins tells those who wait for it (see Draining) that a drain of some
// of the lane's epochs begins.
func (l *Lane) drainBegins() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.drains)
	l.drains = make(chan struct{})
	for _, f := range l.forks {
		f.drainBegins()
	}
}

func (l *Lane) nextDrain() <-chan struct{} {
	l = l.whole()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.drains
}

// stepName returns the name of the step that works, or did last. One that waits
// for its fork is not it: a step behind the fork is.
func (l *Lane) stepName() string {
	l.mu.Lock()
	forks := slices.Clone(l.forks)
	steps := slices.Clone(l.steps)
	l.mu.Unlock()
	step := l.step.Load()
	waits := !l.busy.Load()
	for _, f := range forks {
		forked := step != nil && f.forker == step
		if f.busy.Load() && (waits || forked) {
			return f.stepName()
		}
		waits = waits || forked
	}
	if waits {
		for _, s := range steps {
			if s.working.Load() > 0 {
				return s.Name()
			}
		}
	}
	if step != nil {
		return step.Name()
	}
	return "pipeline"
}

// whole returns the lane that l is, or is a view of.
func (l *Lane) whole() *Lane {
	if l.base != nil {
		return l.base
	}
	return l
}

// view returns the lane as the steps of a branch see it: its context, under
// which timers and goroutines run too, names the branch.
func (l *Lane) view(path string) *Lane {
	l = l.whole()
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.views[path]
	if v == nil {
		v = &Lane{base: l, of: l.of}
		v.ctx = branchContext{l.ctx, path, v}
		if l.views == nil {
			l.views = make(map[string]*Lane)
		}
		l.views[path] = v
	}
	return v
}

func (l *Lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// call is guard for calls of steps.
func (l *Lane) call(f func() error) error {
	l.busy.Store(true)
	defer l.busy.Store(false)
	return l.guard(f)
}

// guard calls user code and makes an error of its panic.
func (l *Lane) guard(f func() error) (err error) {
	returned := false
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		} else if !returned {
			l.failed(l.located(errGoexit, nil)) // this goroutine is ending
		}
	}()
	err = f()
	returned = true
	return err
}

var errGoexit = errors.New("runtime.Goexit was called (a t.Fatal, say)")

func isPanic(err error) bool {
	var p *PanicError
	return errors.As(err, &p)
}

// located says where an error happened, as far as the step did not.
func (l *Lane) located(err error, about *span) error {
	var located *StepError
	if errors.As(err, &located) {
		return err
	}
	located = &StepError{Step: l.stepName(), Epoch: l.of, Offset: -1, Err: err}
	if about != nil {
		located.Epoch = about.owner.state.Epoch
		located.Offset = about.first
	}
	return located
}
