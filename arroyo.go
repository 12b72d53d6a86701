package arroyo

import "context"

// Strategy is a step of a pipeline: it accepts messages, as an io.WriteCloser
// accepts bytes.
//
// A strategy has one upstream, which calls its methods from one goroutine at a
// time; so it needs no locks of its own, and it keeps the same promise to the
// step behind it. LaneOf gives it timers and goroutines that keep it too.
//
// Every message submitted is settled (acked, rejected or returned) or handed
// on. An error that a method returns ends the run.
type Strategy[T any] interface {
	// Submit takes over the messages but not the slice, which must be
	// neither kept nor changed. It may block: that is backpressure. Its
	// context ends when the messages' epoch is fenced; an error returned
	// then is not a failure.
	Submit(ctx context.Context, msgs []Message[T]) error

	// Flush hands on what is held back, a half-full batch say, and flushes
	// the next step behind it.
	Flush(ctx context.Context) error

	// Close is called once. After a clean drain it comes behind a last
	// Flush: wait until all that was submitted is handed on or settled,
	// release what the strategy owns, close the next step. Under a context
	// that has ended the work is abandoned: hand nothing on, release what
	// the strategy owns, close the next step, return.
	Close(ctx context.Context) error
}

// Forward is a complete pass-through to embed in a strategy, which then
// overrides what it does differently: often only Submit.
type Forward[T any] struct{ Next Strategy[T] }

// ForwardTo returns a Forward to the next step. It panics without one.
func ForwardTo[T any](next Strategy[T]) Forward[T] {
	if next == nil {
		panic("arroyo: ForwardTo: the next step is nil")
	}
	return Forward[T]{next}
}

// Submit hands the messages on.
func (f Forward[T]) Submit(ctx context.Context, msgs []Message[T]) error {
	return f.Next.Submit(ctx, msgs)
}

// Flush flushes the next step.
func (f Forward[T]) Flush(ctx context.Context) error { return f.Next.Flush(ctx) }

// Close closes the next step.
func (f Forward[T]) Close(ctx context.Context) error { return f.Next.Close(ctx) }
