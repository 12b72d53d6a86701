package strategies

import (
	"context"
	"errors"
	"runtime/debug"

	"github.com/arroyo-go/arroyo"
)

// settleFailed gives the message the verdict that its function's error stands
// for. An error that stands for none comes back, located, and so does a panic of
// the error's own methods.
func settleFailed[T any](step *arroyo.Step, m arroyo.Message[T], err error) (failure error) {
	defer func() {
		if v := recover(); v != nil {
			failure = panicked(step, m, v)
		}
	}()
	var invalid *arroyo.InvalidError
	switch {
	case err == errSettled:
	case errors.Is(err, arroyo.Drop):
		m.Ack()
	case errors.As(err, &invalid):
		m.Reject(arroyo.NewStepError(step.Name(), m, err))
	default:
		return arroyo.NewStepError(step.Name(), m, err)
	}
	return nil
}

// panicked makes a located error of what recover returned.
func panicked[T any](step *arroyo.Step, m arroyo.Message[T], value any) error {
	return arroyo.NewStepError(step.Name(), m, &arroyo.PanicError{Value: value, Stack: debug.Stack()})
}

// isFenced reports whether ctx, an epoch's, has ended because the epoch has, and
// not with all of the lane's work.
func isFenced(ctx context.Context, lane *arroyo.Lane) bool {
	return ctx.Err() != nil && lane.Context().Err() == nil
}

func isPanic(err error) bool {
	var p *arroyo.PanicError
	return errors.As(err, &p)
}
