package arroyo

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinels, to be matched with errors.Is.
var (
	// ErrClosed is returned by a Consumer's methods once it is closed.
	ErrClosed = errors.New("arroyo: consumer is closed")

	// ErrFenced is the cause of an epoch's context when the epoch is over:
	// its partition was lost, or its revocation is past its deadline.
	ErrFenced = errors.New("arroyo: the partition is no longer ours")

	// ErrSessionEnded is the Reason of a Lost: the broker took the partitions
	// back, because the member's session expired or it was removed, or the
	// group could not be reached.
	ErrSessionEnded = errors.New("arroyo: the group session ended")

	// ErrLeaseExpired is the Reason of a Lost of a consumer that no broker
	// has answered for nearly a session timeout: others may own its
	// partitions soon.
	ErrLeaseExpired = errors.New("arroyo: no broker has answered for too long")

	// ErrTakenBack is the Reason of an Assigned of partitions that had been
	// fenced while the group went on counting them as ours. They go on at the
	// committed offsets.
	ErrTakenBack = errors.New("arroyo: the group took this member back")

	// ErrSeek is the Reason of the Lost and the Assigned of a Seek.
	ErrSeek = errors.New("arroyo: the application moved the partition's position")

	// ErrAbandoned is the cause of a context when a drain is past its
	// deadline and the run goes on without what is left.
	ErrAbandoned = errors.New("arroyo: the drain is past its deadline")

	// ErrReturned ends a run in which a message was returned outside of a
	// drain: nobody would have read it again.
	ErrReturned = errors.New("arroyo: message returned outside of a drain; ack or reject it instead")

	// ErrNoDeadLetter ends a run in which a message was rejected: nothing is
	// dropped silently.
	ErrNoDeadLetter = errors.New("arroyo: a rejected message ends the run, because there is nowhere to put it: give the processor the option DeadLetter, or return arroyo.Drop to skip such messages")

	// ErrAlreadyRun is returned by a second Run of a Processor.
	ErrAlreadyRun = errors.New("arroyo: a processor runs once; build a new consumer and processor")

	// Drop, returned by a user function, says that the message is dropped
	// on purpose: it is acked and not handed on.
	//lint:ignore ST1012 it is a verdict, as io.EOF is an end, and not a failure
	Drop = errors.New("arroyo: drop this message")
)

// OptionError reports an option or argument that cannot work. NewConsumer and
// NewProcessor return it.
type OptionError struct {
	Option string // its name in the source, as in "DrainTimeout"
	Reason string // what is wrong and what to do
}

func (e *OptionError) Error() string { return "arroyo: " + e.Option + ": " + e.Reason }

// OwnedOptionError reports a kgo option that Arroyo sets itself, because what
// it promises depends on it. NewConsumer returns it.
type OwnedOptionError struct {
	Option  string // the kgo option, as in "kgo.DisableAutoCommit"
	Instead string // Arroyo's own way
}

func (e *OwnedOptionError) Error() string {
	return fmt.Sprintf("arroyo: %s is set by arroyo itself: %s", e.Option, e.Instead)
}

// NotHeldError refuses a commit for an epoch that is not held: never, or no
// longer. The broker would accept such a commit and so rewind the partition's
// new owner.
type NotHeldError struct{ Epoch Epoch }

func (e *NotHeldError) Error() string {
	return fmt.Sprintf("arroyo: %s is not held, so nothing was committed for it", e.Epoch)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *NotHeldError) Is(target error) bool { return target == ErrFenced }

// CommitError reports offsets that were not committed, or of which it is not
// known whether they were.
type CommitError struct {
	Partitions []Partition
	Unknown    bool // whether the broker may have applied the commit
	Err        error
}

func (e *CommitError) Error() string {
	outcome := "commit failed"
	if e.Unknown {
		outcome = "commit of unknown outcome"
	}
	return fmt.Sprintf("arroyo: %s for %s: %v", outcome, partitionList(e.Partitions), e.Err)
}

func (e *CommitError) Unwrap() error { return e.Err }

// TransportError reports that a broker cannot be reached. It is informational:
// the client goes on trying.
type TransportError struct {
	Broker string // host:port
	Err    error
}

func (e *TransportError) Error() string {
	return fmt.Sprintf("arroyo: broker %s cannot be reached: %v", e.Broker, e.Err)
}

func (e *TransportError) Unwrap() error { return e.Err }

// AuthenticationError reports that a broker refused the credentials.
type AuthenticationError struct {
	Broker string // host:port
	Err    error
}

func (e *AuthenticationError) Error() string {
	return fmt.Sprintf("arroyo: broker %s refused the credentials (check the SASL mechanism, user and password given to kgo.SASL): %v", e.Broker, e.Err)
}

func (e *AuthenticationError) Unwrap() error { return e.Err }

// UnknownTopicError reports a topic that does not exist, or that this user may
// not see.
type UnknownTopicError struct{ Topic string }

func (e *UnknownTopicError) Error() string {
	return fmt.Sprintf("arroyo: topic %q does not exist, or this user may not describe it: create it, or correct the name given to NewConsumer", e.Topic)
}

// GroupError reports a failure of the group's management, such as a join that
// was not authorised.
type GroupError struct {
	Group string
	Err   error
}

func (e *GroupError) Error() string { return fmt.Sprintf("arroyo: group %q: %v", e.Group, e.Err) }

func (e *GroupError) Unwrap() error { return e.Err }

// PartitionError reports that a partition, or a whole topic (Partition.Number
// is -1), cannot be fetched.
type PartitionError struct {
	Partition Partition
	Err       error
}

func (e *PartitionError) Error() string {
	return fmt.Sprintf("arroyo: fetching %s: %v", e.Partition, e.Err)
}

func (e *PartitionError) Unwrap() error { return e.Err }

// OffsetOutOfRangeError reports that a partition's log has no record at the
// offset to go on from: it was deleted, or the log ends before it. Nothing is
// skipped silently.
type OffsetOutOfRangeError struct {
	Partition Partition
	Offset    int64 // where the group is; -1 when unknown
	Start     int64 // of the log; -1 when unknown
	End       int64 // of the log; -1 when unknown
	Err       error
}

func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("arroyo: %s has no offset %d (its log is %d to %d): either records were deleted before they were read, or the group's offset was set wrong; set it with an admin tool, or let the option ResetOutOfRange say where to go on",
		e.Partition, e.Offset, e.Start, e.End)
}

func (e *OffsetOutOfRangeError) Unwrap() error { return e.Err }

// StepError says where in a pipeline an error happened.
type StepError struct {
	Step   string // the step's name
	Epoch  Epoch  // zero when the step worked for no one partition
	Offset int64  // of the record; of a batch, the first one's; -1: of none
	Err    error
}

func (e *StepError) Error() string {
	if e.Epoch == (Epoch{}) {
		return fmt.Sprintf("arroyo: step %s: %v", e.Step, e.Err)
	}
	if e.Offset < 0 {
		return fmt.Sprintf("arroyo: step %s at %s: %v", e.Step, e.Epoch.Partition, e.Err)
	}
	return fmt.Sprintf("arroyo: step %s at %s offset %d: %v", e.Step, e.Epoch.Partition, e.Offset, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// NewStepError says that err happened in a step at a message. Steps wrap what
// their user's function returned in it.
func NewStepError[T any](step string, m Message[T], err error) *StepError {
	e := &StepError{Step: step, Epoch: m.Epoch(), Offset: -1, Err: err}
	if r := m.root(); r.span != nil { // whose record may have been recycled
		e.Offset = r.offset()
	}
	return e
}

// StuckError ends a run to which a partition came back while a call of user code
// for its assignment before was still going on, and did not return.
type StuckError struct {
	Step      string // whose call has not returned
	Partition Partition
	After     time.Duration // since the partition came back
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("arroyo: %s came back %v ago and cannot go on, because a call of step %s for its last assignment has not returned: let its function honour its context",
		e.Partition, e.After, e.Step)
}

// PanicError is a panic of user code.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// InvalidError marks a message that can never be processed; see Invalid.
type InvalidError struct{ Err error }

// Invalid says that a message can never be processed, whatever is tried. A
// user function returns it, also wrapped with %w. Any other error means that
// the world is broken, not the message, and ends the run.
func Invalid(err error) error { return &InvalidError{err} }

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid message: %v", e.Err) }

func (e *InvalidError) Unwrap() error { return e.Err }

// AbandonedError is returned by Run when its last drain was not clean: work was
// not done at the deadline, or partitions were lost meanwhile. The partitions'
// next owners go on from the committed offsets.
type AbandonedError struct {
	Records    int         // without a verdict
	Partitions []Partition // of these records
	Lost       []Partition // lost before their last commit
	Step       string      // the step whose call did not return; empty if none
	After      time.Duration
}

func (e *AbandonedError) Error() string {
	var parts []string
	if e.Records > 0 {
		parts = append(parts, fmt.Sprintf("%d records of %s are not done", e.Records, partitionList(e.Partitions)))
	}
	if len(e.Lost) > 0 {
		parts = append(parts, fmt.Sprintf("%s were lost, so that what was done since their last commit is done again", partitionList(e.Lost)))
	}
	if e.Step != "" {
		parts = append(parts, fmt.Sprintf("step %s has not returned: let its function honour its context", e.Step))
	}
	return fmt.Sprintf("arroyo: the last drain was not clean after %v: %s", e.After, strings.Join(parts, "; "))
}

// Is makes errors.Is(err, ErrAbandoned) true.
func (e *AbandonedError) Is(target error) bool { return target == ErrAbandoned }

func partitionList(ps []Partition) string {
	const most = 8
	names := make([]string, 0, most+1)
	for i, p := range ps {
		if i == most {
			names = append(names, fmt.Sprintf("and %d more", len(ps)-most))
			break
		}
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}
