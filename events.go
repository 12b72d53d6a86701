package arroyo

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Event is what Poll returns: one of *Assigned, *Fetched, *Revoked, *Lost,
// *Failed and *Closed.
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
	states []*epochState
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
	// Reason says why: ErrSessionEnded, the answer to a commit, or kgo's
	// *ErrDataLoss.
	Reason error
	states []*epochState
}

// Failed reports an error once per change of state. The consumer goes on
// trying; Fatal says that trying will not help: the authorisation, the topic
// or the configuration is wrong.
type Failed struct {
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
func (*Closed) event()   {}

// hold lets a rebalance wait for the application. The next Poll releases the
// event, unless Hold was called.
type hold struct {
	held     atomic.Bool
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
