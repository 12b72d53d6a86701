package strategies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/arroyo-go/arroyo"
)

// Healthcheck hands everything on as it is, and touches a file (makes it, or
// sets its times to now) at once and then at every interval, for a probe that
// looks at the file's age. It does so while the pipeline makes progress, that
// is while messages come through or are settled, and while it is idle, that is
// while nothing is unsettled. It stops when the pipeline is stuck.
//
// A step that holds messages back makes no progress while it does; so a probe's
// limit has to be longer than the wait of any Batch, and than what one message
// may take. As the first step of a shared pipeline, Healthcheck touches the
// file for a member without partitions as well. In a processor with a pipeline
// for each partition, one pipeline that is well hides others that are stuck:
// use Processor.Health there, which also knows of commits and needs no file.
//
// An error of the file system ends the run. The file is not removed. It panics
// if the path is empty or the interval is not positive.
func Healthcheck[T any](path string, every time.Duration, next arroyo.Strategy[T], opts ...Option) arroyo.Strategy[T] {
	require("Healthcheck", "the path is empty", path != "")
	require("Healthcheck", fmt.Sprintf("an interval of %v is not positive", every), every > 0)
	require("Healthcheck", "the next step is nil", next != nil)
	return &healthcheck[T]{
		Forward: arroyo.ForwardTo(next),
		step:    configure("Healthcheck", nil, opts).step,
		path:    path,
		every:   every,
	}
}

type healthcheck[T any] struct {
	arroyo.Forward[T]
	step  *arroyo.Step
	path  string
	every time.Duration

	stop     func() // of the timer; nil before the start
	moved    bool   // whether there was progress since the last touch
	under    []arroyo.Message[struct{}]
	compacts int // how many of these there may be before the settled ones are taken out
}

// Start is called on the lane of a first step before there is a record.
func (s *healthcheck[T]) Start(ctx context.Context) error {
	if s.stop != nil {
		return nil
	}
	return s.touch(s.step.Enter(ctx, 0))
}

func (s *healthcheck[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	s.step.Enter(ctx, len(msgs))
	if err := s.Start(ctx); err != nil {
		return err
	}
	for i := range msgs {
		s.under = append(s.under, arroyo.With(msgs[i], struct{}{}))
	}
	if len(s.under) > s.compacts {
		s.compact()
		s.compacts = 2*len(s.under) + 1024
	}
	err := s.Next.Submit(ctx, msgs)
	s.moved = true
	return err
}

func (s *healthcheck[T]) Flush(ctx context.Context) error {
	if err := s.Start(ctx); err != nil {
		return err
	}
	return s.Next.Flush(ctx)
}

func (s *healthcheck[T]) Close(ctx context.Context) error {
	if s.stop != nil {
		s.stop()
	}
	return s.Next.Close(ctx)
}

// check is called at every interval.
func (s *healthcheck[T]) check(ctx context.Context) error {
	lane := arroyo.LaneOf(ctx)
	s.compact()
	if !s.moved && len(s.under) > 0 {
		s.again(lane)
		return nil
	}
	return s.touch(lane)
}

func (s *healthcheck[T]) touch(lane *arroyo.Lane) error {
	s.moved = false
	s.again(lane)
	now := time.Now()
	err := os.Chtimes(s.path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		err = s.create(now)
	}
	if err != nil {
		return arroyo.NewStepError(s.step.Name(), arroyo.Message[T]{}, err)
	}
	return nil
}

func (s *healthcheck[T]) create(now time.Time) error {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Chtimes(s.path, now, now))
}

func (s *healthcheck[T]) again(lane *arroyo.Lane) { s.stop = lane.After(s.every, s.check) }

// compact takes out what is settled, which is progress.
func (s *healthcheck[T]) compact() {
	kept := s.under[:0]
	for _, m := range s.under {
		if !m.Settled() && !m.Fenced() && m.Record() != nil {
			kept = append(kept, m)
		}
	}
	if len(kept) < len(s.under) {
		s.moved = true
	}
	clear(s.under[len(kept):])
	s.under = kept
}
