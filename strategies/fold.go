package strategies

import (
	"context"
	"time"

	"github.com/arroyo-go/arroyo"
)

// fold is what Reduce and Accumulate have in common: messages are added to
// something of the user's, and one message that stands for all of them is
// handed on.
type fold[In, Out any] struct {
	*config
	wait   time.Duration
	room   func(arroyo.Message[In]) reason // why a message does not fit any more, or ""
	add    func(context.Context, arroyo.Message[In]) (struct{}, error)
	ready  func() reason             // why it is time to hand on, or ""
	result func() (out Out, ok bool) // !ok: there is nothing to hand on; either way a new one begins
	next   arroyo.Strategy[Out]

	members []arroyo.Message[struct{}] // without their payloads
	stop    func()                     // of the timer that runs since the first member
	out     [1]arroyo.Message[Out]
}

func (s *fold[In, Out]) Submit(ctx context.Context, msgs []arroyo.Message[In]) error {
	lane := s.step.Enter(ctx, len(msgs))
	for len(msgs) > 0 {
		n, why, err := s.take(ctx, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
		if why != "" {
			// What was added may be of several epochs.
			if err := s.handOn(lane.Context(), why); err != nil {
				return err
			}
		}
	}
	if len(s.members) > 0 && s.stop == nil && s.wait > 0 {
		s.stop = lane.After(s.wait, func(ctx context.Context) error { return s.handOn(ctx, byTime) })
	}
	return nil
}

// take adds messages until it is time to hand on, and says how many and why.
func (s *fold[In, Out]) take(ctx context.Context, msgs []arroyo.Message[In]) (n int, why reason, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[min(n, len(msgs)-1)], v)
		}
	}()
	for ; n < len(msgs); n++ {
		m := &msgs[n]
		if m.Fenced() {
			continue
		}
		if len(s.members) > 0 && s.room != nil {
			if why := s.room(*m); why != "" {
				return n, why, nil
			}
		}
		if _, err = s.add(ctx, *m); err != nil {
			if err := settleFailed(s.step, *m, err); err != nil {
				return n, "", err
			}
			continue
		}
		s.members = append(s.members, arroyo.With(*m, struct{}{}))
		if why := s.ready(); why != "" {
			return n + 1, why, nil
		}
	}
	return n, "", nil
}

// handOn hands on what was made of the members, unless all of them are fenced.
// Those that are cannot be taken out of it any more.
func (s *fold[In, Out]) handOn(ctx context.Context, why reason) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // the lane is abandoned
	}
	members := s.members
	s.members = s.members[:0]
	s.stopTimer()
	all := arroyo.Join(struct{}{}, members)
	out, ok, err := s.finish(all)
	if err != nil || all.Fenced() {
		return err
	}
	s.step.Count(string(why), 1)
	if !ok {
		all.Ack()
		return nil
	}
	s.out[0] = arroyo.With(all, out)
	err = s.next.Submit(ctx, s.out[:])
	clear(s.out[:])
	return err
}

func (s *fold[In, Out]) finish(all arroyo.Message[struct{}]) (out Out, ok bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, all, v)
		}
	}()
	out, ok = s.result()
	return out, ok, nil
}

func (s *fold[In, Out]) Flush(ctx context.Context) error {
	if anyOf(ctx, s.members) {
		if err := s.handOn(ctx, reasonOf(ctx)); err != nil {
			return err
		}
	}
	return s.next.Flush(ctx)
}

func (s *fold[In, Out]) Close(ctx context.Context) error {
	s.stopTimer()
	s.members = nil
	return s.next.Close(ctx)
}

func (s *fold[In, Out]) stopTimer() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}
