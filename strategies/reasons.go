package strategies

import (
	"context"

	"github.com/arroyo-go/arroyo"
)

// reason is why a step handed on what it had collected. It has exactly one each
// time, and Status counts them under these names.
type reason string

const (
	byCount reason = "flushed by count"
	bySize  reason = "flushed by size"
	byTime  reason = "flushed by time"
	byReady reason = "flushed when ready"
	byFlush reason = "flushed by a drain"
	byBound reason = "flushed at the bound"
)

// reasonOf returns why a step is flushed under ctx.
func reasonOf(ctx context.Context) reason {
	if arroyo.AtBound(ctx) {
		return byBound
	}
	return byFlush
}

// anyOf reports whether a flush under ctx is about any of these messages.
func anyOf[T any](ctx context.Context, msgs []arroyo.Message[T]) bool {
	of := arroyo.FlushOf(ctx)
	for i := range msgs {
		if isOf(of, msgs[i]) {
			return true
		}
	}
	return false
}

func isOf[T any](of func(arroyo.Epoch) bool, m arroyo.Message[T]) bool {
	any := false
	for e := range m.Epochs() {
		if any = true; of(e) {
			return true
		}
	}
	return !any && of(arroyo.Epoch{}) // without a record it is of no epoch
}
