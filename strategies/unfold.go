package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// Unfold calls f with each message and hands on what it returns: one message
// for each result, in their order, all of which stand for the one that they
// were made of. That is settled when the last of them is: returned if any of
// them was, else rejected if any was, with the first error, else acked. A
// message of which f makes nothing is acked at once.
//
// f says with its error what becomes of the message, as in RunTask.
func Unfold[In, Out any](f func(context.Context, arroyo.Message[In]) ([]Out, error), next arroyo.Strategy[Out], opts ...Option) arroyo.Strategy[In] {
	require("Unfold", "the function is nil", f != nil)
	require("Unfold", "the next step is nil", next != nil)
	c := configure("Unfold", f, opts)
	return &unfold[In, Out]{config: c, f: attempted(&c.attempts, f), next: next}
}

type unfold[In, Out any] struct {
	*config
	f    func(context.Context, arroyo.Message[In]) ([]Out, error)
	next arroyo.Strategy[Out]
	out  []arroyo.Message[Out] // kept for its memory
}

// unfoldChunk is about how many children are handed on at once.
const unfoldChunk = 1024

func (s *unfold[In, Out]) Submit(ctx context.Context, msgs []arroyo.Message[In]) error {
	s.step.Enter(ctx, len(msgs))
	for len(msgs) > 0 {
		n, err := s.unfold(ctx, msgs)
		if err == nil && len(s.out) > 0 {
			err = s.next.Submit(ctx, s.out)
		}
		clear(s.out)
		if s.out = s.out[:0]; cap(s.out) > 4*unfoldChunk {
			s.out = nil // one message had very many children
		}
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// unfold makes the children of the first messages, and says of how many.
func (s *unfold[In, Out]) unfold(ctx context.Context, msgs []arroyo.Message[In]) (n int, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, msgs[n], v)
		}
	}()
	for ; n < len(msgs) && len(s.out) < unfoldChunk; n++ {
		m := &msgs[n]
		if m.Fenced() {
			continue
		}
		children, err := s.f(ctx, *m)
		if err != nil {
			if err := settleFailed(s.step, *m, err); err != nil {
				return n, err
			}
			continue
		}
		s.out = append(s.out, arroyo.Split(*m, children)...)
	}
	return n, nil
}

func (s *unfold[In, Out]) Flush(ctx context.Context) error { return s.next.Flush(ctx) }

func (s *unfold[In, Out]) Close(ctx context.Context) error { return s.next.Close(ctx) }
