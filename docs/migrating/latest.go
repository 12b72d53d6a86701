package migrating

import (
	"context"
	"time"

	"github.com/arroyo-go/arroyo"
)

// latest hands on, every so often, the latest event of each user.
type latest struct {
	arroyo.Forward[Event]
	every time.Duration
	held  []arroyo.Message[Event]
	stop  func() // of the timer
}

func newLatest(every time.Duration, next arroyo.Strategy[Event]) arroyo.Strategy[Event] {
	return &latest{Forward: arroyo.ForwardTo(next), every: every}
}

func (s *latest) Submit(ctx context.Context, msgs []arroyo.Message[Event]) error {
	s.held = append(s.held, msgs...)
	if s.stop == nil {
		s.stop = arroyo.LaneOf(ctx).After(s.every, s.handOn)
	}
	return nil
}

func (s *latest) handOn(ctx context.Context) error {
	held := arroyo.Unfenced(s.held) // without those of lost partitions
	s.release()
	byUser := make(map[int64][]arroyo.Message[Event])
	for _, m := range held {
		byUser[m.Payload.User] = append(byUser[m.Payload.User], m)
	}
	out := make([]arroyo.Message[Event], 0, len(byUser))
	for _, all := range byUser {
		// When this message is acked, so are all that it stands for.
		out = append(out, arroyo.Join(all[len(all)-1].Payload, all))
	}
	if len(out) == 0 {
		return nil
	}
	return s.Next.Submit(ctx, out)
}

// Flush comes when a partition is given up, and at the end.
func (s *latest) Flush(ctx context.Context) error {
	if err := s.handOn(ctx); err != nil {
		return err
	}
	return s.Next.Flush(ctx)
}

func (s *latest) Close(ctx context.Context) error {
	s.release()
	return s.Next.Close(ctx)
}

func (s *latest) release() {
	if s.stop != nil {
		s.stop()
	}
	s.held, s.stop = nil, nil
}
