package strategies

import "maps"

// actors is the source of messages with keys: of those with the same key one is
// worked on at a time, in their order.
type actors[In, Out any] struct {
	hashes []uint64 // of the keys of the chunk that is pushed next
	byHash map[uint64]*actor[In, Out]
	limit  int // of byHash; beyond it those without work are let go of
	free   []*actor[In, Out]
	queue  []*actor[In, Out] // that could be worked on
	first  int               // of queue
}

// actor is the messages with one key. Two keys of the same hash share one, which
// costs them nothing but to be worked on at the same time.
type actor[In, Out any] struct {
	first, last ref[In, Out] // of the n that wait
	n           int
	busy        bool // a worker has it
	queued      bool
}

func newActors[In, Out any]() *actors[In, Out] {
	return &actors[In, Out]{byHash: make(map[uint64]*actor[In, Out]), limit: 1024}
}

func (s *actors[In, Out]) push(c *chunk[In, Out]) {
	n := len(c.in)
	if cap(c.links) < n {
		c.links = make([]ref[In, Out], n)
		c.actors = make([]*actor[In, Out], n)
	}
	c.links, c.actors = c.links[:n], c.actors[:n]
	for i, h := range s.hashes[:n] {
		a := s.byHash[h]
		if a == nil {
			a = s.newActor()
			s.byHash[h] = a
		}
		c.actors[i] = a
		a.append(ref[In, Out]{c, int32(i)})
		s.offer(a)
	}
}

func (s *actors[In, Out]) newActor() *actor[In, Out] {
	if len(s.byHash) >= s.limit {
		maps.DeleteFunc(s.byHash, func(_ uint64, a *actor[In, Out]) bool {
			idle := a.n == 0 && !a.busy && !a.queued
			if idle {
				s.free = append(s.free, a)
			}
			return idle
		})
		s.limit = max(1024, 2*len(s.byHash))
	}
	if n := len(s.free); n > 0 {
		a := s.free[n-1]
		s.free = s.free[:n-1]
		return a
	}
	return new(actor[In, Out])
}

// offer queues an actor that has work and no worker.
func (s *actors[In, Out]) offer(a *actor[In, Out]) {
	if a.n > 0 && !a.busy && !a.queued {
		a.queued = true
		s.queue = append(s.queue, a)
	}
}

func (s *actors[In, Out]) ready() int { return len(s.queue) - s.first }

func (s *actors[In, Out]) take(k int, refs []ref[In, Out], skip func(ref[In, Out]) bool) []ref[In, Out] {
	for k > len(refs) && s.first < len(s.queue) {
		a := s.queue[s.first]
		s.queue[s.first] = nil
		s.first++
		a.queued = false // its messages may have been removed
		for a.n > 0 && k > len(refs) {
			if r := a.shift(); !skip(r) {
				refs = append(refs, r)
				a.busy = true
			}
		}
	}
	if s.first > len(s.queue)/2 {
		n := copy(s.queue, s.queue[s.first:])
		clear(s.queue[n:])
		s.queue, s.first = s.queue[:n], 0
	}
	return refs
}

func (s *actors[In, Out]) putBack(refs []ref[In, Out], from int) {
	for i := len(refs) - 1; i >= from; i-- {
		a := refs[i].actor()
		a.unshift(refs[i])
		// Whose messages were begun goes on to be busy.
		if i == 0 || refs[i-1].actor() != a {
			a.busy = false
			s.offer(a)
		}
	}
}

func (s *actors[In, Out]) finish(refs []ref[In, Out], from, to int) {
	for i := from; i < to; i++ {
		a := refs[i].actor()
		if i+1 < len(refs) && refs[i+1].actor() == a {
			continue // goes on to be busy, or is looked at with its last one
		}
		a.busy = false
		s.offer(a)
	}
}

func (s *actors[In, Out]) remove(f func(ref[In, Out]) bool, removed []ref[In, Out]) []ref[In, Out] {
	for _, a := range s.byHash {
		for range a.n {
			if r := a.shift(); f(r) {
				removed = append(removed, r)
			} else {
				a.append(r)
			}
		}
	}
	return removed
}

func (r ref[In, Out]) actor() *actor[In, Out] { return r.c.actors[r.i] }

func (a *actor[In, Out]) append(r ref[In, Out]) {
	if a.n == 0 {
		a.first = r
	} else {
		a.last.c.links[a.last.i] = r
	}
	a.last = r
	a.n++
}

func (a *actor[In, Out]) unshift(r ref[In, Out]) {
	if a.n == 0 {
		a.last = r
	} else {
		r.c.links[r.i] = a.first
	}
	a.first = r
	a.n++
}

func (a *actor[In, Out]) shift() ref[In, Out] {
	r := a.first
	if a.n--; a.n > 0 {
		a.first = r.c.links[r.i]
	} else {
		a.first, a.last = ref[In, Out]{}, ref[In, Out]{}
	}
	r.c.links[r.i] = ref[In, Out]{}
	return r
}
