package arroyo

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Event is what Poll returns: one of *Assigned, *Fetched, *Revoked, *Lost,
// *EndOfPartition, *Committed, *Failed and *Closed.
//
// For one epoch the order is Assigned, then Fetched any number of times, then
// Revoked or Lost (a Revoked may still turn into a Lost while it is held),
// then nothing.
type Event interface{ event() }

// Assigned gives partitions to this consumer. Fetching begins when it is
// released.
type Assigned struct {
	Epochs []Epoch
	// Reason says why, when it was not an ordinary rebalance.
	Reason error
	hold
	states   []*epochState
	consumer *Consumer
}

// StartAt says where an epoch starts, whatever the group has committed: for
// those who keep offsets elsewhere. It is not committed. It has to be called
// before the event is released, and returns a *NotHeldError if the epoch is
// not one of the event's, or an *OptionError for a negative offset or an event
// that is released.
func (e *Assigned) StartAt(epoch Epoch, offset int64) error {
	if offset < 0 {
		return &OptionError{"StartAt", fmt.Sprintf("offset %d is negative: give the offset of the first record to read", offset)}
	}
	if e.over.Load() {
		return &OptionError{"StartAt", "the event is released: call it before the next Poll, or Hold the event"}
	}
	for _, s := range e.states {
		if s.Epoch == epoch {
			e.consumer.mu.Lock()
			defer e.consumer.mu.Unlock()
			s.startAt = offset
			s.fetched = position{offset, -1}
			return nil
		}
	}
	return &NotHeldError{epoch}
}

// Fetched is a slice of one partition's records, in order. The slice and the
// records belong to the receiver. Control records (the markers of
// transactions) are not in it; where the log has nothing else, Records is
// empty and Next has moved.
type Fetched struct {
	Epoch   Epoch
	Records []*kgo.Record
	// Next is the offset behind these records, and so the one to commit when
	// they and all before them are done.
	Next int64
	// End is where the partition ended when this was fetched: the last
	// stable offset under kgo.ReadCommitted, else the high watermark.
	End   int64
	state *epochState
	next  position
}

// Revoked asks for partitions back. They are still this consumer's until the
// event is released: finish, commit, release.
type Revoked struct {
	Epochs []Epoch
	// Deadline is when the epochs are fenced and the rebalance goes on
	// without the release. Commit before it.
	Deadline time.Time
	hold
	states []*epochState
}

// Lost says that partitions are no longer this consumer's. They are fenced
// already: commit nothing for them, another member may own them.
type Lost struct {
	Epochs []Epoch
	// Reason says why: ErrSessionEnded, ErrLeaseExpired, ErrSeek, the
	// answer to a commit, an *OffsetOutOfRangeError, or kgo's *ErrDataLoss.
	Reason error
	states []*epochState
}

// EndOfPartition says that a partition was read to its end as it was then. It
// comes once per catching up, and only with the option EndOfPartitionEvents.
type EndOfPartition struct {
	Epoch  Epoch
	Offset int64 // the end
}

// Committed is the outcome of a commit. It comes only with the option
// CommittedEvents.
type Committed struct {
	Offsets map[Epoch]int64
	Err     error // as Commit returns it
}

// Failed reports an error once per change of state. The consumer goes on
// trying; Fatal says that trying will not help: the authorisation, the topic
// or the configuration is wrong.
type Failed struct {
	Epoch Epoch // zero if it concerns no one partition
	Err   error
	Fatal bool
}

// Closed is the last event. After it Poll returns ErrClosed.
type Closed struct{}

func (*Assigned) event() {}
func (*Fetched) event()  {}
func (*Revoked) event()  {}
func (*Lost) event()     {}
func (*Failed) event()   {}

func (*EndOfPartition) event() {}
func (*Committed) event()      {}
func (*Closed) event()         {}

// hold lets a rebalance wait for the application. The next Poll releases the
// event, unless Hold was called.
type hold struct {
	held     atomic.Bool
	over     atomic.Bool // released
	once     sync.Once
	released chan struct{}
	then     func() // runs on release; never blocks; may be nil
}

// Hold keeps the rebalance waiting until release is called, from any
// goroutine; further calls do nothing. A held event does not keep Poll from
// returning other events. Holding is bounded: by Deadline for a Revoked, by
// the same budget of the rebalance for an Assigned.
func (h *hold) Hold() (release func()) {
	h.held.Store(true)
	return h.release
}

func (h *hold) release() {
	h.once.Do(func() {
		h.over.Store(true)
		if h.released != nil {
			close(h.released)
		}
		if h.then != nil {
			h.then()
		}
	})
}

// releasable is an event that Poll may have to release.
type releasable interface {
	heldBy() *hold
}

func (e *Assigned) heldBy() *hold { return &e.hold }
func (e *Revoked) heldBy() *hold  { return &e.hold }
