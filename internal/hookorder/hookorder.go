// Package hookorder checks, in tests, the order in which a processor calls its
// hooks: an epoch is assigned once and ends once, and of one that is over
// nothing more is told.
package hookorder

import (
	"sync"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Checker is given to arroyo.Hooks of one processor.
type Checker struct {
	fault func(format string, args ...any)

	mu    sync.Mutex
	known map[arroyo.Epoch]string // what was told last of its beginning or end
}

// New returns a checker that tells of faults; t.Errorf does.
func New(fault func(format string, args ...any)) *Checker {
	return &Checker{fault: fault, known: make(map[arroyo.Epoch]string)}
}

const assigned = "assigned"

// OnAssigned implements arroyo.HookAssigned.
func (c *Checker) OnAssigned(epochs []arroyo.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range epochs {
		if before, ok := c.known[e]; ok {
			c.fault("hooks: %v is assigned after it was %s", e, before)
		}
		c.known[e] = assigned
	}
}

// OnRevoked implements arroyo.HookRevoked.
func (c *Checker) OnRevoked(epochs []arroyo.Epoch, _ time.Duration) { c.over("revoked", epochs) }

// OnLost implements arroyo.HookLost.
func (c *Checker) OnLost(epochs []arroyo.Epoch, _ error) { c.over("lost", epochs) }

func (c *Checker) over(how string, epochs []arroyo.Epoch) {
	if len(epochs) == 0 {
		c.fault("hooks: nothing is %s", how)
	}
	for _, e := range epochs {
		c.expectOpen(how, e)
		c.mu.Lock()
		c.known[e] = how
		c.mu.Unlock()
	}
}

// OnFetched implements arroyo.HookFetched.
func (c *Checker) OnFetched(e arroyo.Epoch, _, _ int) { c.expectOpen("fetched", e) }

// OnCommitted implements arroyo.HookCommitted.
func (c *Checker) OnCommitted(offsets map[arroyo.Epoch]int64, _ time.Duration, _ error) {
	for e := range offsets {
		c.expectOpen("committed", e)
	}
}

// OnPaused implements arroyo.HookPaused.
func (c *Checker) OnPaused(e arroyo.Epoch, _ bool) { c.expectOpen("paused", e) }

// OnStalled implements arroyo.HookStalled.
func (c *Checker) OnStalled(p arroyo.PartitionStatus, _ bool) { c.expectOpen("stalled", p.Epoch) }

func (c *Checker) expectOpen(what string, e arroyo.Epoch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.known[e]; now != assigned {
		c.fault("hooks: %v is told as %s, and is %q", e, what, now)
	}
}
