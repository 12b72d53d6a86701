package strategies

import (
	"errors"
	"runtime/debug"

	"github.com/arroyo-go/arroyo"
)

// settleFailed gives the message the verdict that its function's error stands
// for. An error that stands for none comes back, located.
func settleFailed[T any](step *arroyo.Step, m arroyo.Message[T], err error) error {
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
