package strategies

import (
	"context"
	"sync/atomic"

	"github.com/arroyo-go/arroyo"
)

// chunk is what one Submit hands to a pool, as far as it is of one epoch, and
// its results.
type chunk[In, Out any] struct {
	ctx   context.Context
	in    []arroyo.Message[In]
	first []int64         // offsets of their first records
	eras  []*era[In, Out] // one, but for a message of several epochs
	epoch [1]*era[In, Out]

	// Of the worker that has the message of the same index, until its run is
	// handed in; then of the lane.
	out []arroyo.Message[Out]
	has []bool // whether there is a result

	// Of the lane.
	arrived  []bool // of an ordered pool: whether the worker is done with it
	released int    // how many, from the start on, are handed on or skipped
	left     int    // how many are neither

	// Of the source; see actors.
	links  []ref[In, Out]
	actors []*actor[In, Out]
}

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
		c.first = make([]int64, n)
		c.out = make([]arroyo.Message[Out], n)
		flags := make([]bool, 2*n)
		c.has, c.arrived = flags[:n:n], flags[n:]
	}
	c.ctx = ctx
	c.in, c.out, c.has, c.arrived, c.first = c.in[:n], c.out[:n], c.has[:n], c.arrived[:n], c.first[:n]
	copy(c.in, msgs)
	for i := range c.in {
		c.first[i] = -1
		if r := c.in[i].Record(); r != nil {
			c.first[i] = r.Offset
		}
	}
	clear(c.has)
	clear(c.arrived)
	c.released, c.left = 0, n
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

// begin notes that a worker begins with the message.
func (r ref[In, Out]) begin() {
	at := r.c.first[r.i]
	for _, e := range r.c.eras {
		e.line.reach.raise(at)
	}
}

// undoesNothing reports whether no message behind this one was begun, of those
// that have been in the pool: if one was, and this one is left to the next owner,
// that one is done again.
func (r ref[In, Out]) undoesNothing() bool {
	for _, e := range r.c.eras {
		if r.c.first[r.i] <= e.line.reach.begun.Load() {
			return false
		}
	}
	return true
}

// reach is how far a pool has come with an epoch: the highest offset that was
// begun.
type reach[In any] struct {
	begun  atomic.Int64
	sample arroyo.Message[In]
}

func (r *reach[In]) raise(at int64) {
	for {
		was := r.begun.Load()
		if at <= was || r.begun.CompareAndSwap(was, at) {
			return
		}
	}
}

// line is the way of one epoch's messages through a pool.
type line[In, Out any] struct {
	epoch   arroyo.Epoch
	reach   *reach[In]
	now     *era[In, Out]     // of what is submitted next
	before  []*era[In, Out]   // earlier ones with something pending
	chunks  []*chunk[In, Out] // of an ordered pool
	first   int               // of chunks
	touched bool              // see pool.touched
}

// era is the messages of a line between two flushes.
type era[In, Out any] struct {
	line    *line[In, Out]
	ctx     context.Context
	sample  arroyo.Message[In]
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
