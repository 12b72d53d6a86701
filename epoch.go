package arroyo

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// epochState is what the consumer knows of one epoch.
type epochState struct {
	Epoch
	ctx    context.Context // ends when the epoch is fenced
	cancel context.CancelCauseFunc
	fenced atomic.Bool
	told   bool // that it is over; the run loop's

	// Under Consumer.mu.
	revoking   *Revoked // the event that asks for it back, once there is one
	committed  int64    // the highest offset that was committed; -1 if none
	fetched    position // after the last record that was yielded; where it starts; offset -1: unknown
	end        int64    // of the log when that was fetched; -1: unknown
	paused     pauseReason
	parked     []*Fetched    // records that were polled and do not flow
	waiting    int           // how many records were polled and not yielded
	startAt    int64         // what StartAt said; -1: nothing
	errorPause time.Duration // after the last of several errors in a row
	started    bool          // whether kgo got a position for it
	begins     bool          // the group begins where it starts, and that is not committed yet
}

// fence ends the epoch. It is not called with a lock held: cancelling a
// context runs the code of those who derived from it.
func (s *epochState) fence(cause error) {
	s.fenced.Store(true)
	s.cancel(cause)
}

func fenceAll(states []*epochState, cause error) {
	for _, s := range states {
		s.fence(cause)
	}
}

func epochsOf(states []*epochState) []Epoch {
	epochs := make([]Epoch, len(states))
	for i, s := range states {
		epochs[i] = s.Epoch
	}
	return epochs
}

func sortEpochs(states []*epochState) {
	slices.SortFunc(states, func(a, b *epochState) int { return cmp.Compare(a.N, b.N) })
}

func sortStates(states []*epochState) {
	slices.SortFunc(states, func(a, b *epochState) int { return comparePartitions(a.Partition, b.Partition) })
}

// openEpoch begins an epoch. Consumer.mu is held.
func (c *Consumer) openEpoch(p Partition) *epochState {
	c.lastEpoch++
	c.recovered(p.String()) // what was wrong is told again if it still is
	s := &epochState{
		Epoch:     Epoch{p, c.lastEpoch},
		committed: -1,
		fetched:   position{-1, -1},
		end:       -1,
		startAt:   -1,
	}
	s.ctx, s.cancel = context.WithCancelCause(c.root)
	c.open[p] = s
	return s
}

// closeEpochs ends epochs: no commit for them is sent from here on.
func (c *Consumer) closeEpochs(states []*epochState, cause error) {
	c.mu.Lock()
	for _, s := range states {
		if c.open[s.Partition] == s {
			delete(c.open, s.Partition)
		}
	}
	c.mu.Unlock()
	c.endEpochs(states, cause)
}
