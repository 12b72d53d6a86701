package strategies

// source is where the workers of a pool take messages from. The pool's mutex is
// held when its methods are called.
type source[In, Out any] interface {
	push(c *chunk[In, Out])
	// ready returns how much could be begun at the same time.
	ready() int
	// take appends up to k messages for one worker, who works on them one
	// after the other. It asks about each one whether it is to be skipped.
	take(k int, refs []ref[In, Out], skip func(ref[In, Out]) bool) []ref[In, Out]
	// putBack takes those from refs[from] on back, which were not begun.
	putBack(refs []ref[In, Out], from int)
	// finish is told that a worker is done with refs[from:to], and is at what
	// is behind that, if there is something.
	finish(refs []ref[In, Out], from, to int)
	// remove takes out the messages, of those that wait, for which f is true.
	remove(f func(ref[In, Out]) bool, removed []ref[In, Out]) []ref[In, Out]
}

// fifo is the source of messages that do not depend on each other.
type fifo[In, Out any] struct {
	back  []ref[In, Out] // what was put back; goes first
	parts []part[In, Out]
	first int // of parts
	n     int
}

// part is the messages of a chunk from one index to another.
type part[In, Out any] struct {
	c        *chunk[In, Out]
	from, to int32
}

func (q *fifo[In, Out]) push(c *chunk[In, Out]) {
	q.parts = append(q.parts, part[In, Out]{c, 0, int32(len(c.in))})
	q.n += len(c.in)
}

func (q *fifo[In, Out]) ready() int { return q.n }

func (q *fifo[In, Out]) take(k int, refs []ref[In, Out], skip func(ref[In, Out]) bool) []ref[In, Out] {
	for len(refs) < k && q.n > 0 {
		if r := q.shift(); !skip(r) {
			refs = append(refs, r)
		}
	}
	return refs
}

func (q *fifo[In, Out]) shift() ref[In, Out] {
	q.n--
	if len(q.back) > 0 {
		r := q.back[0]
		if q.back = q.back[1:]; len(q.back) == 0 {
			q.back = nil
		}
		return r
	}
	p := &q.parts[q.first]
	r := ref[In, Out]{p.c, p.from}
	if p.from++; p.from == p.to {
		q.parts[q.first] = part[In, Out]{}
		if q.first++; q.first > len(q.parts)/2 {
			n := copy(q.parts, q.parts[q.first:])
			clear(q.parts[n:])
			q.parts, q.first = q.parts[:n], 0
		}
	}
	return r
}

func (q *fifo[In, Out]) putBack(refs []ref[In, Out], from int) {
	q.back = append(q.back, refs[from:]...)
	q.n += len(refs) - from
}

func (q *fifo[In, Out]) finish([]ref[In, Out], int, int) {}

func (q *fifo[In, Out]) remove(f func(ref[In, Out]) bool, removed []ref[In, Out]) []ref[In, Out] {
	kept := make([]ref[In, Out], 0, q.n)
	for q.n > 0 {
		if r := q.shift(); f(r) {
			removed = append(removed, r)
		} else {
			kept = append(kept, r)
		}
	}
	q.putBack(kept, 0)
	return removed
}
