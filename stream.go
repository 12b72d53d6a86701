package arroyo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stream is the order of events. What a poll of kgo returned is yielded
// before the events that hooks queued while it ran: a hook about a partition
// comes after kgo has stopped handing out its records. All of it is guarded by
// Consumer.mu.
type stream struct {
	polled    []*Fetched      // from kgo's last poll
	next      int             // of polled
	unparked  []*Fetched      // whose partitions flow again; they come before those
	gated     []*epochState   // with parked ones that the follower held back
	crowded   []*epochState   // of these: with more than may be parked, and not paused yet
	end       *EndOfPartition // behind the records that were yielded last
	queued    []Event         // from hooks and our own goroutines
	interrupt context.CancelFunc
	woken     bool
	closed    bool              // Closed was yielded, or Close was called
	failing   map[string]string // what was reported, by what it concerns
	follower  *follower         // nil: of a consumer that follows nobody
}

func (s *stream) init() { s.failing = make(map[string]string) }

// push queues an event and ends a poll that waits.
func (s *stream) push(ev Event) {
	s.queued = append(s.queued, ev)
	s.stir()
}

func (s *stream) stir() {
	if s.interrupt != nil {
		s.interrupt()
	}
}

// take returns the next event, ErrClosed, errWoken, or nothing.
func (s *stream) take(records bool) (Event, error) {
	if s.closed {
		return nil, ErrClosed
	}
	if s.woken {
		s.woken = false
		return nil, errWoken
	}
	if s.end != nil {
		ev := s.end
		s.end = nil
		return ev, nil
	}
	if records {
		if f := s.takePolled(); f != nil {
			return f, nil
		}
	}
	if len(s.queued) == 0 {
		return nil, nil
	}
	ev := s.queued[0]
	s.queued[0] = nil
	s.queued = s.queued[1:]
	switch ev := ev.(type) {
	case *Revoked:
		s.discard(ev.states)
	case *Lost:
		s.discard(ev.states)
	case *Closed:
		s.closed = true
		s.polled, s.unparked, s.queued = nil, nil, nil
	}
	return ev, nil
}

// morePolled appends slices of records that Poll would return next, until they
// have n records. It leaves them to Poll when anything else is to be looked at
// before.
func (c *Consumer) morePolled(to []*Fetched, n int) []*Fetched {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.stream
	for n > 0 && !s.closed && !s.woken && s.end == nil && s.follower == nil {
		f := s.takePolled()
		if f == nil {
			break
		}
		c.yielded(f)
		to = append(to, f)
		n -= len(f.Records)
	}
	return to
}

// takePolled returns the next slice of records. Those of a paused partition are
// parked with it, so that nobody has to go past them again and again.
func (s *stream) takePolled() *Fetched {
	for {
		var f *Fetched
		switch {
		case len(s.unparked) > 0:
			f, s.unparked[0] = s.unparked[0], nil
			s.unparked = s.unparked[1:]
		case s.next < len(s.polled):
			f, s.polled[s.next] = s.polled[s.next], nil
			s.next++
		default:
			s.polled, s.next = s.polled[:0], 0
			return nil
		}
		e := f.state
		if e.paused&^pausedForGate != 0 || len(e.parked) > 0 {
			s.park(e, f)
			continue
		}
		if s.follower == nil {
			return f
		}
		now, rest := s.follower.release(f)
		if rest != nil {
			s.park(e, rest)
			s.gated = append(s.gated, e)
		}
		if now != nil {
			return now
		}
	}
}

func (s *stream) park(e *epochState, f *Fetched) {
	e.parked = append(e.parked, f)
	if s.follower != nil && e.waiting > maxParked {
		s.crowded = append(s.crowded, e)
	}
}

// hasPolled reports whether there are records to be yielded before kgo is polled
// again.
func (c *Consumer) hasPolled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream.next < len(c.stream.polled) || len(c.stream.unparked) > 0
}

// unpark lets what is parked with an epoch flow, before what was polled later.
func (s *stream) unpark(e *epochState) {
	if e.paused&^pausedForGate != 0 || len(e.parked) == 0 {
		return
	}
	if len(s.unparked) > 0 && s.unparked[0].state == e {
		// The rest of what is parked: the first was yielded in part, and of
		// those that flow, an epoch's follow each other.
		s.unparked = slices.Concat(e.parked, s.unparked)
	} else {
		s.unparked = append(s.unparked, e.parked...)
	}
	e.parked = nil
}

// unparkGated is unpark for all that the follower held back.
func (s *stream) unparkGated() {
	for _, e := range s.gated {
		s.unpark(e)
	}
	s.gated = nil
}

// discard removes records that were polled and not yielded.
func (s *stream) discard(states []*epochState) {
	for _, st := range states {
		st.parked, st.waiting = nil, 0
	}
	if s.next == len(s.polled) && len(s.unparked) == 0 {
		return
	}
	gone := make(map[*epochState]bool, len(states))
	for _, st := range states {
		gone[st] = true
	}
	isGone := func(f *Fetched) bool { return gone[f.state] }
	s.unparked = slices.DeleteFunc(s.unparked, isGone)
	s.polled, s.next = slices.DeleteFunc(s.polled[s.next:], isGone), 0
}

// fill polls kgo, which a hook or ctx may cut short, and keeps what it
// returned. A poll that is cut short leaves records buffered in kgo.
func (c *Consumer) fill(ctx context.Context) {
	c.mu.Lock()
	newest := c.lastEpoch
	c.mu.Unlock()
	c.accept(c.client.PollFetches(ctx), newest)
	if len(c.failed) > 0 {
		// Before the next poll, which would ask for them again at once.
		c.tellPauses(c.failed)
		c.failed = nil
	}
}

// accept takes what a poll returned that began when newest was the last epoch.
// What it has of a partition whose epoch is newer is of an epoch before that.
func (c *Consumer) accept(fetches kgo.Fetches, newest uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range fetches {
		for j := range fetches[i].Topics {
			topic := &fetches[i].Topics[j]
			for k := range topic.Partitions {
				fp := &topic.Partitions[k]
				p := Partition{topic.Topic, fp.Partition}
				if s := c.open[p]; len(fp.Records) > 0 && s != nil && s.N <= newest {
					c.fetched(s, fp)
				}
				if fp.Err != nil {
					c.fetchFailed(p, fp)
				}
			}
		}
	}
}

// fetched turns records into an event. Those of a partition without an open
// epoch have been dropped: kgo goes on returning a lost partition's records
// while its hook runs.
func (c *Consumer) fetched(s *epochState, fp *kgo.FetchPartition) {
	if s.fenced.Load() || s.revoking != nil && s.revoking == c.drainEvent {
		return // what comes after a drain has begun is the next owner's
	}
	end := fp.HighWatermark
	if fp.LastStableOffset >= 0 && fp.LastStableOffset < end {
		end = fp.LastStableOffset
	}
	if s.errorPause > 0 {
		s.errorPause = 0
		c.recovered(s.Partition.String())
	}
	records, last := fp.Records, fp.Records[len(fp.Records)-1]
	if !c.markersStay {
		records = withoutControl(records)
	}
	s.end = end // also while what was fetched is parked
	c.stream.polled = append(c.stream.polled, &Fetched{
		Epoch:   s.Epoch,
		Records: records,
		Next:    last.Offset + 1,
		End:     end,
		state:   s,
		next:    position{last.Offset + 1, last.LeaderEpoch},
	})
	s.waiting += len(records)
}

// withoutControl strips the markers of transactions. We ask for them because a
// log that ends in some is never read to its end without their positions.
func withoutControl(records []*kgo.Record) []*kgo.Record {
	return slices.DeleteFunc(records, func(r *kgo.Record) bool { return r.Attrs.IsControl() })
}

// fetchFailed reports a fetch's error, unless it is none but the end of the
// poll.
func (c *Consumer) fetchFailed(p Partition, fp *kgo.FetchPartition) {
	var (
		lost    *kgo.ErrDataLoss
		session *kgo.ErrGroupSession
	)
	var epoch Epoch
	if s := c.open[p]; s != nil {
		epoch = s.Epoch
	}
	switch err := fp.Err; {
	case errors.Is(err, kgo.ErrClientClosed):
		c.over = true // it answers every poll at once from here on
		if !c.ending && !c.leaving {
			c.report("client", Epoch{}, errClosedByOthers, true)
		}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Poll itself says why.
	case errors.As(err, &lost):
		c.rewound(p, lost)
	case errors.As(err, &session):
		c.report("group", epoch, &GroupError{c.group, session.Err}, isFatal(session.Err))
	case errors.Is(err, kerr.OffsetOutOfRange):
		c.outOfRange(p, err)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		c.report(p.String(), epoch, &UnknownTopicError{p.Topic}, true)
		c.retryLater(p)
	default:
		c.report(p.String(), epoch, &PartitionError{p, err}, isFatal(err))
		c.retryLater(p)
	}
}

// errClosedByOthers says that somebody did what Client's doc forbids.
var errClosedByOthers = fmt.Errorf("%w: its kgo client was closed by others: call Close or Drain of the consumer instead", ErrClosed)

// rewound ends the epoch of a partition whose log lost its end: kgo goes on at
// a smaller offset, and within an epoch offsets only rise.
func (c *Consumer) rewound(p Partition, why *kgo.ErrDataLoss) {
	s := c.open[p]
	if s == nil || s.fenced.Load() {
		return
	}
	c.moveLocked([]*epochState{s}, map[Partition]position{p: {why.ResetTo, -1}}, why)
	// Ended in full without the lock; cancelling runs the code of others.
	c.running.start(func() { c.endEpochs([]*epochState{s}, ErrFenced) })
}

// report queues a Failed once per change of what is wrong with scope. The
// texts of errors are no measure of that: they have port numbers in them.
func (c *Consumer) report(scope string, epoch Epoch, err error, fatal bool) {
	kind := errorKind(err)
	if c.stream.failing[scope] == kind {
		return
	}
	c.stream.failing[scope] = kind
	c.stream.push(&Failed{Epoch: epoch, Err: err, Fatal: fatal})
}

// errorKind tells apart what is worth telling apart: answers of brokers, and
// failures to reach one.
func errorKind(err error) string {
	var answer *kerr.Error
	if errors.As(err, &answer) {
		return answer.Message
	}
	return "no answer"
}

// recovered forgets what was wrong with scope, so that it is reported again
// when it comes back.
func (c *Consumer) recovered(scope string) { delete(c.stream.failing, scope) }

const (
	minErrorPause = 100 * time.Millisecond
	maxErrorPause = 10 * time.Second
)

// retryLater pauses a partition with an error for a while: kgo asks again at
// once and for ever. Consumer.mu is held.
func (c *Consumer) retryLater(p Partition) {
	s := c.open[p]
	if s == nil || s.paused&pausedForError != 0 {
		return
	}
	s.errorPause = min(max(2*s.errorPause, minErrorPause), maxErrorPause)
	s.paused |= pausedForError
	pause := s.errorPause
	c.failed = append(c.failed, p)
	c.running.start(func() {
		if c.sleep(s.ctx, pause) {
			c.setPaused([]*epochState{s}, pausedForError, false)
		}
	})
}

// sleep waits; it reports false if ctx or the consumer ended.
func (c *Consumer) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.dying:
	}
	return false
}

// isFatal tells errors that do not go away by trying again.
func isFatal(err error) bool {
	var start *StartError
	if errors.As(err, &start) {
		return true
	}
	for _, fatal := range []error{
		kerr.TopicAuthorizationFailed,
		kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed,
		kerr.SaslAuthenticationFailed,
		kerr.UnknownTopicID,
		kerr.FencedInstanceID,
		kerr.InvalidGroupID,
		kerr.InvalidSessionTimeout,
		kerr.InconsistentGroupProtocol,
		kerr.UnsupportedVersion,
	} {
		if errors.Is(err, fatal) {
			return true
		}
	}
	return false
}
