// Package arroyo is for writing Kafka consumers: consume, process, settle,
// commit; at least once and in order per partition; with rebalances made
// visible as events to those who want them and invisible to everybody else. It
// stands on franz-go, is pure Go, and is tested without a Kafka (see package
// memkafka).
//
// # A pipeline
//
// What nearly everybody needs is a [Consumer], a pipeline of steps (see
// package strategies) and a [Processor] that runs it:
//
//	consumer, err := arroyo.NewConsumer("ingest", []string{"events"},
//		arroyo.ClientOptions(kgo.SeedBrokers("localhost:9092")))
//	...
//	pipeline := strategies.RunTask(strategies.JSON,
//		strategies.Filter(wanted,
//			strategies.ForEachBatch(1000, time.Second, insert)))
//	processor, err := arroyo.NewProcessor(consumer, pipeline)
//	...
//	err = processor.Run(ctx)
//
// There are no commits, no callbacks and no rebalance in sight. When ctx ends,
// Run drains, commits and leaves the group, within [DrainTimeout].
//
// # The way of a record
//
// [Consumer.Poll] takes it from kgo and returns it in a [Fetched]. The run loop
// puts it into the queue of the [Lane], whose goroutine hands it, with others
// of its partition, to the first step's Submit as a [Message]. Steps transform
// it, hold it back, drop it; the last one settles it. The watermark of its
// [Epoch] is the offset below which every record is done. It is what is
// committed: every [CommitInterval], when the partition is revoked, and at the
// end.
//
// # What is promised
//
// Nothing is lost: below a committed offset every record was acked. No commit
// is sent for a partition that is not held. After a partition was given up, no
// record of it is handed to user code. Each partition's records are handed out
// in order. A record is processed twice only if its member crashed, was cut
// off, or missed a deadline after processing and before committing it. A drain
// ends by its deadline, whatever user code and brokers do.
//
// # What an error means
//
// A user function says it: [Invalid], this message can never be processed;
// [Drop], it is done with on purpose; anything else, the world is broken, so
// the run ends and the next one starts with that message. Nothing is dropped
// silently. A panic is an error with its stack.
//
// # Your own strategy
//
// A [Strategy] has three methods. Embed [Forward] and override Submit. Use
// [LaneOf] for timers and goroutines, and [With], [Join] and [Split] for
// messages that stand for others. Package strategies/strategytest says whether
// it keeps the contract.
//
// # Your own loop
//
// A Consumer can be used alone, by those who embed Arroyo in something else:
//
//	for {
//		ev, err := consumer.Poll(ctx)
//		if err != nil {
//			return err
//		}
//		switch ev := ev.(type) {
//		case *arroyo.Fetched: // process; later Commit what is done
//		case *arroyo.Revoked: // finish and Commit; the next Poll releases it
//		case *arroyo.Lost: // forget
//		case *arroyo.Failed: // tell; give up if it is Fatal
//		case *arroyo.Closed:
//			return nil
//		}
//	}
//
// Poll has to be called again and again: it releases the rebalance events
// before it. An event that takes longer to handle is held with its Hold
// method. [Consumer.Drain] ends the stream in good order, [Consumer.Close] at
// once.
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

	// Flush hands on what is held back, a half-full batch say, of the epochs
	// that FlushOf(ctx) names, and flushes the next step behind it. A step
	// that works asynchronously does not wait: it flushes the next step once
	// the results of what was submitted before, of these epochs, are handed
	// on.
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
