package arroyo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DeadLetter says what happens to messages that are rejected: their records
// are written to another topic, with where they came from and why, and count
// as done once the brokers have acked that. Without it a rejected message ends
// the run.
func DeadLetter(policy DeadLetterPolicy) ProcessorOption {
	return func(c *processorConfig) {
		own := policy // an option may be used for several processors
		c.deadLetter = &own
	}
}

// DeadLetterPolicy is what DeadLetter takes. Its zero values are the defaults,
// except for the topic.
//
// Limits are there to stop a processor that would divert everything. They are
// counted for each partition, in the order of its offsets, over the messages
// whose verdict is in, and anew each time that the partition is assigned. Where
// a limit is passed the run ends with a *DeadLetterLimitError; the message that
// passed it is not dead-lettered, and nothing from it on is committed.
type DeadLetterPolicy struct {
	// Topic is where dead letters go. It has to exist, unless the brokers
	// make topics by themselves and the client asks them to, with
	// kgo.AllowAutoTopicCreation.
	Topic string

	// Producer writes them. Defaults to the consumer's client, which waits
	// for all in-sync replicas unless kgo.RequiredAcks says otherwise. Its
	// Produce has to honour its context; an attempt of which it does not tell
	// is not made again.
	Producer Producer

	// MaxConsecutive is how many messages in a row may be rejected; the
	// next one passes the limit. 0: any number.
	MaxConsecutive int

	// MaxRatio is the share of rejected messages among all, between 0 and
	// 1, that must not be passed. It is looked at from the hundredth message
	// on. 0: there is no such limit.
	MaxRatio float64

	// OnFailure says what to do when dead letters cannot be written.
	// Defaults to DeadLetterBlock.
	OnFailure DeadLetterFailure

	// Timeout is after how long without an ack that is so. Defaults to 30 s.
	// An error that the producer returns tells it sooner. A producer that is
	// slow but acks is none that fails.
	Timeout time.Duration
}

// Producer writes records. A *kgo.Client is one.
type Producer interface {
	// Produce writes a record and then calls promise with the outcome, once,
	// from any goroutine. It may block while too much is buffered.
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
}

// DeadLetterFailure says what to do when dead letters cannot be written.
type DeadLetterFailure int

const (
	// DeadLetterBlock goes on trying. Meanwhile Status and the log say so,
	// nothing is committed from the first such message on, and at the bound
	// of what is in flight no more is read. Revokes and the end of the run
	// leave such messages to the next owner at their deadlines.
	DeadLetterBlock DeadLetterFailure = iota

	// DeadLetterStop ends the run with a *DeadLetterError.
	DeadLetterStop
)

// ratioFrom is how many messages MaxRatio wants to have seen, so that a few
// bad ones at the start are no ratio.
const ratioFrom = 100

// check finds what cannot work, and completes the defaults.
func (p *DeadLetterPolicy) check(consumer *Consumer) error {
	bad := func(format string, args ...any) error {
		return &OptionError{"DeadLetter", fmt.Sprintf(format, args...)}
	}
	switch {
	case p.Topic == "":
		return bad("the topic is empty: give the name of the dead-letter topic")
	case consumer.reads(p.Topic):
		return bad("the topic %q is one that this consumer reads: it would read its own dead letters", p.Topic)
	case p.MaxConsecutive < 0:
		return bad("MaxConsecutive is %d: give how many messages in a row may be rejected, or 0", p.MaxConsecutive)
	case p.MaxRatio < 0 || p.MaxRatio > 1 || p.MaxRatio != p.MaxRatio:
		return bad("MaxRatio is %v: give a share between 0 and 1", p.MaxRatio)
	case p.OnFailure != DeadLetterBlock && p.OnFailure != DeadLetterStop:
		return bad("OnFailure is %d: give DeadLetterBlock or DeadLetterStop", p.OnFailure)
	case p.Producer == nil && consumer.client.OptValue(kgo.RequiredAcks) == any(kgo.NoAck()):
		return bad("the client does not wait for acks, so nobody knows whether a dead letter was written: leave out kgo.RequiredAcks(kgo.NoAck()), or give a Producer")
	case p.Producer == nil && consumer.client.OptValue(kgo.ManualFlushing) == true:
		return bad("the client waits for somebody to flush it: leave out kgo.ManualFlushing, or give a Producer")
	case p.Timeout < 0:
		return bad("Timeout is %v: give how long an ack may take, or 0 for 30 s", p.Timeout)
	}
	if p.Timeout == 0 {
		p.Timeout = 30 * time.Second
	}
	if p.Producer == nil {
		p.Producer = consumer.client
	}
	return nil
}

// limited reports whether there are limits.
func (p *DeadLetterPolicy) limited() bool {
	return p != nil && (p.MaxConsecutive > 0 || p.MaxRatio > 0)
}

// DeadLetterError ends a run whose dead letters cannot be written, under
// DeadLetterStop.
type DeadLetterError struct {
	Topic     string    // of dead letters
	Partition Partition // of the message
	Offset    int64
	Err       error
}

func (e *DeadLetterError) Error() string {
	return fmt.Sprintf("arroyo: the dead letter of %s offset %d cannot be written to topic %q: %v", e.Partition, e.Offset, e.Topic, e.Err)
}

func (e *DeadLetterError) Unwrap() error { return e.Err }

// ErrDeadLetterTimeout is the Err of a DeadLetterError when no broker has acked
// a dead letter in time.
var ErrDeadLetterTimeout = errors.New("arroyo: no broker has acked it in time")

// DeadLetterLimitError ends a run in which more messages of a partition were
// rejected than the DeadLetterPolicy allows.
type DeadLetterLimitError struct {
	Partition   Partition
	Offset      int64   // of the message that passed the limit
	Limit       string  // "MaxConsecutive" or "MaxRatio"
	Max         float64 // the limit
	Rejected    int64   // messages of this assignment, this one included
	Seen        int64   // of which so many had a verdict
	Consecutive int64   // rejected in a row, this one included
	Err         error   // why this one was rejected
}

func (e *DeadLetterLimitError) Error() string {
	return fmt.Sprintf("arroyo: too many messages of %s are rejected: at offset %d, %d in a row and %d of %d pass the dead-letter limit %s %v; the last one: %v",
		e.Partition, e.Offset, e.Consecutive, e.Rejected, e.Seen, e.Limit, e.Max, e.Err)
}

func (e *DeadLetterLimitError) Unwrap() error { return e.Err }
