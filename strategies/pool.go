package strategies

import (
	"context"
	"fmt"
	"runtime"

	"github.com/arroyo-go/arroyo"
)

// pool is a step that works on many messages at once, on workers, and hands
// their results on from the lane's goroutine: in the order of each partition,
// or as they come. All but its workers is the lane's.
type pool[In, Out any] struct {
	*config
	task    func(context.Context, arroyo.Message[In]) (Out, error)
	next    arroyo.Strategy[Out]
	ordered bool
	prepare func([]arroyo.Message[In]) error // called before the source's push; may be nil

	workers workers[In, Out]
	drains  <-chan struct{} // see wait

	lines   map[arroyo.Epoch]*line[In, Out]
	reaches reaches
	touched []*line[In, Out] // have something new at their head, perhaps
	flushes []*poolFlush[In, Out]
	due     []func() error // passes flushes on

	// Kept for their memory.
	runs       []*run[In, Out]
	out        []arroyo.Message[Out]
	freeChunks []*chunk[In, Out]
	freeLines  []*line[In, Out]
}

func newPool[In, Out any](kind string, n int, task func(context.Context, arroyo.Message[In]) (Out, error), source source[In, Out], next arroyo.Strategy[Out], opts []Option) *pool[In, Out] {
	require(kind, fmt.Sprintf("a number of %d at once is not positive", n), n > 0)
	require(kind, "the task is nil", task != nil)
	require(kind, "the next step is nil", next != nil)
	c := configure(kind, task, opts)
	s := &pool[In, Out]{
		config: c,
		task:   attempted(&c.attempts, task),
		next:   next,
		lines:  make(map[arroyo.Epoch]*line[In, Out]),
	}
	s.workers.max = n
	s.workers.cores = runtime.GOMAXPROCS(0)
	s.workers.size = 1
	s.workers.source = source
	s.workers.perform = s.perform
	s.workers.skip = s.workers.look
	s.workers.deliver = s.deliver
	return s
}

// start is called when the pool is used first.
func (s *pool[In, Out]) start(lane *arroyo.Lane) {
	if s.workers.lane == nil {
		s.workers.lane = lane
		s.workers.wake = make(chan struct{}, s.workers.max)
		s.workers.ready = make(chan struct{}, 1)
		s.drains = arroyo.Draining(lane.Context())
	}
}

func (s *pool[In, Out]) Submit(ctx context.Context, msgs []arroyo.Message[In]) error {
	lane := s.step.Enter(ctx, len(msgs))
	s.start(lane)
	for e, part := range arroyo.ByEpoch(msgs) {
		if s.prepare != nil {
			if err := s.prepare(part); err != nil {
				return err
			}
		}
		s.workers.push(s.accept(ctx, e, part))
	}
	err := s.wait(ctx)
	if err != nil && ctx.Err() != nil {
		// It is not about the messages of this Submit, whose epoch may be
		// over.
		lane.Post(func(context.Context) error { return err })
		return nil
	}
	return err
}

// accept makes a chunk and notes it where it belongs.
func (s *pool[In, Out]) accept(ctx context.Context, e arroyo.Epoch, msgs []arroyo.Message[In]) *chunk[In, Out] {
	c := new(chunk[In, Out])
	if n := len(s.freeChunks); n > 0 {
		c, s.freeChunks = s.freeChunks[n-1], s.freeChunks[:n-1]
	}
	c.reset(ctx, msgs)
	c.eras = c.epoch[:0]
	if e != (arroyo.Epoch{}) {
		s.join(c, e)
		return c
	}
	seen := make(map[arroyo.Epoch]bool)
	for e := range msgs[0].Epochs() {
		if !seen[e] {
			seen[e] = true
			s.join(c, e)
		}
	}
	if len(seen) == 0 {
		s.join(c, e) // a message without a record
	}
	return c
}

// join puts a chunk at the end of an epoch's line.
func (s *pool[In, Out]) join(c *chunk[In, Out], e arroyo.Epoch) {
	l := s.lines[e]
	if l == nil {
		if n := len(s.freeLines); n > 0 {
			l, s.freeLines = s.freeLines[n-1], s.freeLines[:n-1]
		} else {
			l = new(line[In, Out])
			l.now = &era[In, Out]{line: l}
		}
		l.epoch, l.gaveUp = e, false
		l.reach = s.reaches.of(e, arroyo.With(c.in[0], struct{}{}))
		s.lines[e] = l
	}
	if l.now.pending == 0 {
		l.now.ctx, l.now.of = c.ctx, arroyo.With(c.in[0], struct{}{})
	}
	l.now.pending += len(c.in)
	c.join(l.now)
	if s.ordered {
		l.push(c)
	}
}

// wait hands on what is done, and goes on doing so while the workers have
// enough before them. It ends early when ctx ends, or when the lane is wanted
// for a drain: what was submitted is more than there should be then, by what
// is submitted meanwhile.
func (s *pool[In, Out]) wait(ctx context.Context) error {
	for {
		if err := s.deliver(ctx); err != nil {
			return err
		}
		if !s.workers.await(true, true) {
			return nil
		}
		s.step.Enter(ctx, 0)
		enough := false
		select {
		case <-s.workers.ready:
			s.workers.letEnd()
		case <-ctx.Done():
			enough = true
		case <-s.drains:
			// The channel is from before, so it is closed as well by a
			// drain that began when this Submit did.
			s.drains = arroyo.Draining(s.workers.lane.Context())
			enough = true
		}
		s.workers.await(false, false)
		if enough {
			return s.deliver(ctx)
		}
	}
}

// perform is called by the workers.
func (s *pool[In, Out]) perform(r *run[In, Out]) (err error) {
	s.step.Working(1)
	defer s.step.Working(-1)
	var m *arroyo.Message[In]
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, *m, v)
		}
	}()
	for {
		i, ok := r.claim()
		if !ok {
			return nil
		}
		c, at := r.refs[i].c, r.refs[i].i
		m = &c.in[at]
		if m.Fenced() {
			continue
		}
		value, err := s.task(c.ctx, *m)
		if err != nil {
			switch {
			case m.Fenced():
			case err == errSettled:
				c.state[at] = returned
			default:
				if err := settleFailed(s.step, *m, err); err != nil {
					return err
				}
			}
			continue
		}
		c.out[at] = arroyo.With(*m, value)
		c.state[at] = result
	}
}

// deliver hands on what is done.
func (s *pool[In, Out]) deliver(ctx context.Context) error {
	s.runs = s.workers.collect(s.runs)
	for _, r := range s.runs {
		if err := s.arrived(r.refs[r.from:r.end]); err != nil {
			return err
		}
	}
	return s.release()
}

// arrived takes over messages from the workers.
func (s *pool[In, Out]) arrived(refs []ref[In, Out]) error {
	if !s.ordered {
		return s.handOnNow(refs)
	}
	for _, r := range refs {
		r.c.arrived[r.i] = true
		if int(r.i) == r.c.released {
			s.touch(r.c)
		}
	}
	return nil
}

// touch notes that a chunk can perhaps be handed on.
func (s *pool[In, Out]) touch(c *chunk[In, Out]) {
	for _, e := range c.eras {
		if l := e.line; !l.touched && l.head() == c {
			l.touched = true
			s.touched = append(s.touched, l)
		}
	}
}

// release hands on what is at the head of its lines, and passes flushes on.
func (s *pool[In, Out]) release() error {
	for n := len(s.touched); n > 0; n = len(s.touched) {
		l := s.touched[n-1]
		s.touched = s.touched[:n-1]
		l.touched = false
		c := l.head()
		if c == nil || !s.isFirst(c) {
			continue
		}
		if err := s.handOnHead(c); err != nil {
			return err
		}
		if c.left == 0 {
			s.leave(c)
		}
	}
	s.skipFenced()
	for len(s.due) > 0 {
		passOn := s.due[0]
		s.due = s.due[1:]
		if err := passOn(); err != nil {
			return err
		}
	}
	return nil
}

// isFirst reports whether a chunk is at the head of all its lines.
func (s *pool[In, Out]) isFirst(c *chunk[In, Out]) bool {
	for _, e := range c.eras {
		if e.line.head() != c {
			return false
		}
	}
	return true
}

// handOnHead hands on what of a chunk is done, up to the first message that is
// not. Behind a message that a Retry has returned, results are returned, too:
// the next owner begins there and makes them again.
func (s *pool[In, Out]) handOnHead(c *chunk[In, Out]) error {
	from, n := c.released, 0
	for ; c.released < len(c.in) && c.arrived[c.released]; c.released++ {
		switch m := &c.in[c.released]; {
		case c.state[c.released] == returned:
			for _, e := range c.eras {
				e.line.gaveUp = true
			}
		case c.state[c.released] == settled:
		case c.gaveUp() && m.MayReturn():
			m.Return()
		default:
			c.out[from+n] = c.out[c.released]
			n++
		}
	}
	err := s.handOn(c.ctx, c.out[from:from+n])
	s.account(c, c.released-from)
	return err
}

// leave takes a chunk out of its lines; what is behind it comes to their heads.
func (s *pool[In, Out]) leave(c *chunk[In, Out]) {
	for _, e := range c.eras {
		e.line.pop()
		if next := e.line.head(); next != nil {
			s.touch(next)
		}
	}
	s.recycle(c)
}

// handOnNow hands on messages of an unordered pool.
func (s *pool[In, Out]) handOnNow(refs []ref[In, Out]) error {
	for len(refs) > 0 {
		c, n := refs[0].c, 0
		for ; n < len(refs) && refs[n].c == c; n++ {
			if i := refs[n].i; c.state[i] == result {
				s.out = append(s.out, c.out[i])
			}
		}
		refs = refs[n:]
		err := s.handOn(c.ctx, s.out)
		clear(s.out)
		s.out = s.out[:0]
		if err != nil {
			return err
		}
		if s.account(c, n); c.left == 0 {
			s.recycle(c)
		}
	}
	return nil
}

// handOn gives results to the next step. Those of an epoch that is over are
// nobody's, and an error about them is no failure.
func (s *pool[In, Out]) handOn(ctx context.Context, msgs []arroyo.Message[Out]) error {
	if ctx.Err() != nil {
		return nil
	}
	if msgs = arroyo.Unfenced(msgs); len(msgs) == 0 {
		return nil
	}
	err := s.next.Submit(ctx, msgs)
	if err != nil && isFenced(ctx, s.workers.lane) && !isPanic(err) {
		return nil
	}
	return err
}

// account notes that n messages of a chunk are handed on or skipped.
func (s *pool[In, Out]) account(c *chunk[In, Out], n int) {
	c.left -= n
	for _, e := range c.eras {
		if e.pending -= n; e.pending == 0 {
			s.eraOver(e)
		}
	}
}

// recycle takes back a chunk of which nothing is left.
func (s *pool[In, Out]) recycle(c *chunk[In, Out]) {
	for _, e := range c.eras {
		if l := e.line; l.now.pending == 0 && len(l.before) == 0 && s.lines[l.epoch] == l {
			delete(s.lines, l.epoch)
			l.now.ctx, l.now.of = nil, sample{}
			s.freeLines = append(s.freeLines, l)
		}
	}
	c.forget()
	if len(s.freeChunks) < 64 {
		s.freeChunks = append(s.freeChunks, c)
	}
}
