package memkafka

import (
	"sync"
	"time"
)

// deadline is a moment that can be moved, and whose passing is a closed channel.
//
// Clients set one for each request and take it back after the answer. So its timer is not moved with it: when it fires
// too early, it is set anew.
type deadline struct {
	wake chan struct{} // gets a token when the moment has passed

	mu      sync.Mutex
	at      time.Time // zero: never
	passed  chan struct{}
	timer   *time.Timer
	fires   time.Time // when the timer does; zero: it does not
	stopped bool
}

func newDeadline(wake chan struct{}) *deadline {
	return &deadline{wake: wake, passed: make(chan struct{})}
}

// over returns what is closed when the deadline has passed.
func (d *deadline) over() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}

// set moves the deadline; the zero time means never. Whoever waits already sees the new one, unless the old one has
// passed.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	d.at = t
	if !t.IsZero() {
		after := time.Until(t)
		if after <= 0 {
			d.pass()
			return
		}
		d.fireBy(t, after)
	}
	if isClosed(d.passed) {
		d.passed = make(chan struct{})
	}
}

// stop makes it a deadline that never passes. It can't be set any more.
func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}

// fireBy makes sure that the timer fires at t, or before. The caller holds mu.
func (d *deadline) fireBy(t time.Time, after time.Duration) {
	switch {
	case d.timer == nil:
		d.timer = time.AfterFunc(after, d.fire)
	case d.fires.IsZero() || t.Before(d.fires):
		d.timer.Reset(after)
	default:
		return
	}
	d.fires = t
}

func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fires = time.Time{}
	if d.at.IsZero() {
		return
	}
	if after := time.Until(d.at); after > 0 {
		d.fireBy(d.at, after)
		return
	}
	d.pass()
}

// pass tells everybody. The caller holds mu.
func (d *deadline) pass() {
	if !isClosed(d.passed) {
		close(d.passed)
	}
	notify(d.wake)
}
