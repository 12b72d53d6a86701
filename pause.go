package arroyo

// pauseReason is why a partition does not flow. It flows when no reason is
// left.
type pauseReason uint8

const (
	pausedByUser      pauseReason = 1 << iota
	pausedForError                // it cannot be fetched; tried again after a while
	pausedForPosition             // nobody knows yet where it goes on
	pausedForStart                // its Assigned is not released yet
	pausedForRoom                 // its queue is full
	pausedForLane                 // user code of its last assignment has not returned
	pausedForGate                 // much of it is parked until others have committed it
)

// Pause stops the flow of partitions: Poll returns no more of their records
// until Resume, and membership is kept. It belongs to the epoch: a partition
// that is taken away and comes back flows. Pausing costs: what kgo has fetched
// of a partition is dropped, and after Resume the broker's fetch in flight has
// to end first (kgo.FetchMaxWait).
//
// It returns a *NotHeldError for the first partition that is not held; the
// others are paused all the same.
func (c *Consumer) Pause(partitions ...Partition) error {
	return c.setPausedByUser(partitions, true)
}

// Resume lets partitions flow that Pause stopped. It returns a *NotHeldError
// for the first partition that is not held.
func (c *Consumer) Resume(partitions ...Partition) error {
	return c.setPausedByUser(partitions, false)
}

func (c *Consumer) setPausedByUser(partitions []Partition, on bool) (err error) {
	var states []*epochState
	c.mu.Lock()
	for _, p := range partitions {
		s := c.open[p]
		if s == nil || s.fenced.Load() {
			if err == nil {
				err = &NotHeldError{Epoch{Partition: p}}
			}
			continue
		}
		states = append(states, s)
	}
	c.mu.Unlock()
	c.setPaused(states, pausedByUser, on)
	return err
}

// setPaused adds or takes away a reason.
func (c *Consumer) setPaused(states []*epochState, why pauseReason, on bool) {
	c.mu.Lock()
	for _, s := range states {
		if on {
			s.paused |= why
		} else {
			s.paused &^= why
			c.stream.unpark(s)
		}
	}
	c.stream.stir() // what is parked may flow
	c.mu.Unlock()
	c.tellPauses(partitionsOfStates(states))
}

// tellPauses makes kgo fetch what is to flow and nothing else: kgo's pauses
// know no epochs and outlive a rebalance. A partition of ours without an open
// epoch, which nobody reads, does not flow either.
//
// What kgo is told has to come in the order of what was decided, so there is a
// lock around both; kgo is not called under Consumer.mu.
func (c *Consumer) tellPauses(ps []Partition) {
	c.pausing.Lock()
	defer c.pausing.Unlock()
	var pause, resume []Partition
	c.mu.Lock()
	for _, p := range ps {
		s := c.open[p]
		want := c.owned[p] && (s == nil || s.paused != 0)
		switch was := c.paused[p]; {
		case want && !was:
			c.paused[p] = true
			pause = append(pause, p)
		case was && !want:
			delete(c.paused, p)
			resume = append(resume, p)
		}
	}
	c.mu.Unlock()
	if len(pause) > 0 {
		c.client.PauseFetchPartitions(byTopic(pause))
	}
	if len(resume) > 0 {
		c.client.ResumeFetchPartitions(byTopic(resume))
	}
}

// endEpochs ends what hangs on epochs that are not open any more.
func (c *Consumer) endEpochs(states []*epochState, cause error) {
	fenceAll(states, cause)
	c.tellPauses(partitionsOfStates(states))
}

func partitionsOfStates(states []*epochState) []Partition {
	ps := make([]Partition, len(states))
	for i, s := range states {
		ps[i] = s.Partition
	}
	return ps
}
