package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// chunk is what one Submit hands to a pool, as far as it is of one epoch, and
// its results.
type chunk[In, Out any] struct {
	ctx   context.Context
	in    []arroyo.Message[In]
	eras  []*era[In, Out] // one, but for a message of several epochs
	at    []offsets       // of each message; of one of several epochs, in each
	epoch [1]*era[In, Out]

	// Of the worker that has the message of the same index, until its run is
	// handed in; then of the lane.
	out   []arroyo.Message[Out]
	state []state

	// Of the lane.
	arrived  []bool // of an ordered pool: whether the worker is done with it
	released int    // how many, from the start on, are handed on or skipped
	left     int    // how many are neither

	// Of the source; see actors.
	links  []ref[In, Out]
	actors []*actor[In, Out]
}

// state is what a worker made of a message.
type state uint8

const (
	settled  state = iota // or fenced: there is nothing to hand on
	result                // there is
	returned              // by a Retry in a drain
)

// offsets are the lowest and the highest of a message's records.
type offsets struct{ first, last int64 }

// ref is a message of a chunk.
type ref[In, Out any] struct {
	c *chunk[In, Out]
	i int32
}

func (r ref[In, Out]) message() *arroyo.Message[In] { return &r.c.in[r.i] }

// reset makes the chunk one of these messages.
func (c *chunk[In, Out]) reset(ctx context.Context, msgs []arroyo.Message[In]) {
	n := len(msgs)
	if cap(c.in) < n {
		c.in = make([]arroyo.Message[In], n)
		c.out = make([]arroyo.Message[Out], n)
		c.state = make([]state, n)
		c.arrived = make([]bool, n)
	}
	c.ctx = ctx
	c.in, c.out, c.state, c.arrived = c.in[:n], c.out[:n], c.state[:n], c.arrived[:n]
	c.at = c.at[:0]
	copy(c.in, msgs)
	clear(c.state)
	clear(c.arrived)
	c.released, c.left = 0, n
}

// gaveUp reports whether a message in front of the chunk's was returned.
func (c *chunk[In, Out]) gaveUp() bool {
	for _, e := range c.eras {
		if e.line.gaveUp {
			return true
		}
	}
	return false
}

// forget lets go of what the messages keep alive.
func (c *chunk[In, Out]) forget() {
	clear(c.in)
	clear(c.out)
	clear(c.eras)
	clear(c.actors)
	c.ctx = nil
	c.eras = nil
}

// join makes the chunk one of an epoch.
func (c *chunk[In, Out]) join(e *era[In, Out]) {
	c.eras = append(c.eras, e)
	for i := range c.in {
		first, last, _ := c.in[i].Offsets(e.line.epoch)
		c.at = append(c.at, offsets{first, last})
	}
}

// begin notes that a worker has the message.
func (r ref[In, Out]) begin() {
	if len(r.c.eras) == 1 {
		reach := r.c.eras[0].line.reach
		reach.begun = max(reach.begun, r.c.at[r.i].last)
		return
	}
	for i, e := range r.c.eras { // the chunk is this message
		e.line.reach.begun = max(e.line.reach.begun, r.c.at[i].last)
	}
}

// isBehindAll reports whether no message behind this one was begun, of those that
// have been in the pool.
func (r ref[In, Out]) isBehindAll() bool {
	if len(r.c.eras) == 1 {
		return r.c.at[r.i].first > r.c.eras[0].line.reach.begun
	}
	for i, e := range r.c.eras {
		if r.c.at[i].first <= e.line.reach.begun {
			return false
		}
	}
	return true
}

// skip reports whether there is nothing to be done for the message: its epoch is
// over, or it is of a drain and is returned. That it is only if no message
// behind it was begun, which would be done again then.
func (r ref[In, Out]) skip() bool {
	m := r.message()
	switch {
	case m.Fenced():
		return true
	case m.MayReturn() && r.isBehindAll():
		m.Return()
		return true
	}
	return false
}

// line is the way of one epoch's messages through a pool.
type line[In, Out any] struct {
	epoch   arroyo.Epoch
	reach   *reach            // under the workers' mutex
	now     *era[In, Out]     // of what is submitted next
	before  []*era[In, Out]   // earlier ones with something pending
	chunks  []*chunk[In, Out] // of an ordered pool
	first   int               // of chunks
	touched bool              // see pool.touched
	gaveUp  bool              // what is behind is not handed on: see pool.handOnHead
}

// era is the messages of a line between two flushes.
type era[In, Out any] struct {
	line    *line[In, Out]
	ctx     context.Context
	of      sample
	pending int // messages that are not handed on or skipped
	flushes []*poolFlush[In, Out]
	skipped bool // no flush waits for it, since it is fenced
}

// poolFlush is a Flush that waits until it may be passed on.
type poolFlush[In, Out any] struct {
	passOn func() error
	eras   []*era[In, Out] // that it waited for from the start on
	waits  int             // how many of these are not over
	stops  []func() bool   // of what looks out for fences
}

// head returns the line's first chunk.
func (l *line[In, Out]) head() *chunk[In, Out] {
	if l.first == len(l.chunks) {
		return nil
	}
	return l.chunks[l.first]
}

func (l *line[In, Out]) push(c *chunk[In, Out]) { l.chunks = append(l.chunks, c) }

func (l *line[In, Out]) pop() {
	l.chunks[l.first] = nil
	l.first++
	if l.first > len(l.chunks)/2 {
		n := copy(l.chunks, l.chunks[l.first:])
		clear(l.chunks[n:])
		l.chunks, l.first = l.chunks[:n], 0
	}
}
