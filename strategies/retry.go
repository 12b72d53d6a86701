package strategies

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/arroyo-go/arroyo"
)

// RetryPolicy says when a function that failed is called again.
type RetryPolicy struct {
	// Attempts is how often the function is called for a message at the
	// most, the first call included. Defaults to 0, which is without limit:
	// a consumer has nothing better to do than to wait until the world is
	// whole again.
	Attempts int

	// Min and Max bound the wait before the function is called again. The
	// first wait is between Min and twice that, each further one about twice
	// as long, up to Max; chance spreads them, so that many consumers do not
	// come back at once. They default to 100 ms and 30 s.
	Min, Max time.Duration

	// If says whether an error is worth another attempt; if not, it counts at
	// once, as if there were no Retry. It is not asked about an
	// arroyo.Invalid, an arroyo.Drop or a panic, which never are. It is
	// called from several goroutines if the function is. Defaults to yes.
	If func(error) bool

	// GiveUp makes of the last attempt's error the one that counts:
	// arroyo.Invalid rejects the message, so that it goes to the dead
	// letters with the error as the reason. Defaults to the error itself,
	// which ends the run.
	GiveUp func(error) error
}

// Retry calls the step's function again when it failed. The messages behind it
// wait meanwhile, so order is kept; the steps that run tasks in parallel keep
// one worker waiting.
//
// A drain ends it: the attempt in progress is the last, and a message of a
// partition that is given up is returned, so that its next owner begins there.
// So are those behind it, without another attempt, as long as the step fails.
// Of a batch only the members that are being drained are returned, and the
// others are tried on. So a consumer whose database is down stops at once and
// with no error, and it is not a dead letter that is left behind. A message
// whose partition was lost is left alone.
//
// ForEachBatch calls its function again with the rows that have no verdict yet,
// in a slice of their own. Other functions of a batch are called with the same
// one again and can skip what is Settled.
//
// Status counts the further attempts of a step as "retries". Only steps whose
// function returns an error take a Retry. Defaults to one attempt.
func Retry(p RetryPolicy) Option {
	require("Retry", fmt.Sprintf("%d attempts are less than none", p.Attempts), p.Attempts >= 0)
	require("Retry", fmt.Sprintf("a Min of %v is negative", p.Min), p.Min >= 0)
	require("Retry", fmt.Sprintf("a Max of %v is negative", p.Max), p.Max >= 0)
	if p.Min == 0 {
		p.Min = 100 * time.Millisecond
		if p.Max > 0 {
			p.Min = min(p.Min, p.Max)
		}
	}
	if p.Max == 0 {
		p.Max = max(30*time.Second, p.Min)
	}
	require("Retry", fmt.Sprintf("a Min of %v is more than a Max of %v", p.Min, p.Max), p.Min <= p.Max)
	return func(c *config) { c.retry = &p }
}

// wait returns how long to wait after the nth attempt.
func (p *RetryPolicy) wait(n int) time.Duration {
	d := p.Min
	for range n {
		if d >= p.Max/2 {
			d = p.Max
			break
		}
		d *= 2
	}
	return max(p.Min, d/2+rand.N(d/2+1))
}

// attempts is how a step calls its function.
type attempts struct {
	step    *arroyo.Step
	timeout time.Duration // of one; 0: none
	retry   *RetryPolicy  // nil: there is one
	failing atomic.Bool   // whether the last one failed, and may be made again
}

// simple reports whether the function can as well be called without it.
func (a *attempts) simple() bool { return a.retry == nil && a.timeout == 0 }

// attempted returns f as it is to be called.
func attempted[In, Out any](a *attempts, f func(context.Context, arroyo.Message[In]) (Out, error)) func(context.Context, arroyo.Message[In]) (Out, error) {
	if a.simple() {
		return f
	}
	return func(ctx context.Context, m arroyo.Message[In]) (Out, error) { return try(ctx, a, m, f) }
}

// errSettled means that nothing is left to do for a message: it was returned,
// or its epoch is over.
var errSettled = errors.New("strategies: the message needs no verdict")

// try calls f for m as often as the step's options say, and returns what the
// last call did, or errSettled.
func try[In, Out any](ctx context.Context, a *attempts, m arroyo.Message[In], f func(context.Context, arroyo.Message[In]) (Out, error)) (Out, error) {
	for n := 1; ; n++ {
		var none Out
		if a.isFailing() && m.ReturnIfDraining() {
			return none, errSettled
		}
		out, err := once(ctx, a.timeout, m, f)
		if err == nil {
			a.succeeded()
			return out, nil
		}
		if !a.worthMore(err) {
			return none, err
		}
		m := m // m itself stays off the heap
		err = a.failed(ctx, n, err, func() bool { return m.Fenced() || m.ReturnIfDraining() })
		if err != nil {
			return none, err
		}
	}
}

// once calls f within the time that an attempt has.
func once[In, Out any](ctx context.Context, d time.Duration, m In, f func(context.Context, In) (Out, error)) (Out, error) {
	if d == 0 {
		return f(ctx, m)
	}
	attempt, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	out, err := f(attempt, m)
	if err != nil && attempt.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("not done within %v: %w", d, err)
	}
	return out, err
}

func (a *attempts) isFailing() bool { return a.retry != nil && a.failing.Load() }

func (a *attempts) succeeded() {
	if a.isFailing() {
		a.failing.Store(false)
	}
}

// worthMore reports whether an error may be gone at the next attempt.
func (a *attempts) worthMore(err error) bool {
	var (
		invalid  *arroyo.InvalidError
		panicked *arroyo.PanicError
	)
	if a.retry == nil || errors.Is(err, arroyo.Drop) || errors.As(err, &invalid) || errors.As(err, &panicked) {
		return false
	}
	return a.retry.If == nil || a.retry.If(err)
}

// failed is called when the nth attempt failed with err. It returns nil when
// the next one is to be made, errSettled when over says that there is nothing
// left to attempt, and otherwise the error that counts.
func (a *attempts) failed(ctx context.Context, n int, err error, over func() bool) error {
	a.failing.Store(true)
	if over() {
		return errSettled
	}
	if n == a.retry.Attempts {
		if a.retry.GiveUp != nil {
			err = a.retry.GiveUp(err)
		}
		return err
	}
	timer := time.NewTimer(a.retry.wait(n))
	defer timer.Stop()
	var last <-chan struct{}
	for {
		drains := arroyo.Draining(ctx)
		if over() {
			return errSettled
		}
		if drains == last {
			drains = nil // it is closed, and not about us
		}
		select {
		case <-timer.C:
			a.step.Count("retries", 1)
			return nil
		case <-drains:
			last = drains
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
