package arroyo

import (
	"context"
	"sync"
)

// gate lets one commit through at a time, and none between the end of a group
// session and the next. kgo holds locks over commits and joins for the same
// reason; a commit that never meets them can neither be answered
// ILLEGAL_GENERATION nor keep a join waiting.
//
// It is a token: a commit borrows it; a hook that ends a session keeps it; the
// next hook of any kind puts it back. Only kgo's hooks, which never run at the
// same time, open and close the gate. It is shut until the first of them.
type gate struct {
	token chan struct{}

	mu       sync.Mutex
	shut     bool
	inFlight context.CancelCauseFunc // of the commit that has the token
}

func (g *gate) init() {
	g.token = make(chan struct{}, 1)
	g.shut = true
}

// open ends a shut.
func (g *gate) open() {
	g.mu.Lock()
	wasShut := g.shut
	g.shut = false
	g.mu.Unlock()
	if wasShut {
		g.token <- struct{}{}
	}
}

// close waits for the commit in flight and lets no other one begin. When ctx
// ends it cuts the commit short; the broker may apply it all the same.
func (g *gate) close(ctx context.Context, cause error) {
	g.mu.Lock()
	wasShut := g.shut
	g.mu.Unlock()
	if wasShut {
		return
	}
	select {
	case <-g.token:
	case <-ctx.Done():
		g.cut(cause)
		<-g.token
	}
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
}

// cut cancels the commit in flight.
func (g *gate) cut(cause error) {
	g.mu.Lock()
	cancel := g.inFlight
	g.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut
}

// begin says how to cut the commit in flight short; nil: there is none.
func (g *gate) begin(cancel context.CancelCauseFunc) {
	g.mu.Lock()
	g.inFlight = cancel
	g.mu.Unlock()
}

// giveBack returns the token that a commit borrowed.
func (g *gate) giveBack() { g.token <- struct{}{} }
