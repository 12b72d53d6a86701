package arroyo

import (
	"maps"
	"slices"
)

// Assignment returns the epochs that are held, by topic and partition.
func (c *Consumer) Assignment() []Epoch {
	c.mu.Lock()
	states := slices.Collect(maps.Values(c.open))
	c.mu.Unlock()
	sortStates(states)
	return epochsOf(states)
}

// Position returns the offset that an epoch goes on from: behind the last
// record that Poll has returned, or where it starts. It reports false while
// that is not known yet, and if the epoch is not held.
func (c *Consumer) Position(e Epoch) (offset int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.open[e.Partition]
	if s == nil || s.Epoch != e || s.fetched.offset < 0 {
		return 0, false
	}
	return s.fetched.offset, true
}

// Lag returns for each epoch that is held how many offsets there are between
// its position and the end of its log, as of the last fetch. Epochs of which
// nothing was fetched yet are not in it. Offsets are not records: a log may
// have gaps.
func (c *Consumer) Lag() map[Epoch]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	lag := make(map[Epoch]int64, len(c.open))
	for _, s := range c.open {
		if s.end >= 0 && s.fetched.offset >= 0 {
			lag[s.Epoch] = max(0, s.end-s.fetched.offset)
		}
	}
	return lag
}

// startOf returns where an epoch starts that nothing was read of.
func (c *Consumer) startOf(s *epochState) (at position, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.fetched, s.started && s.fetched.offset >= 0
}

// flowOf returns an epoch's position, the end of its log as far as it is known,
// and why it does not flow.
func (c *Consumer) flowOf(s *epochState) (offset, end int64, paused pauseReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.fetched.offset, s.end, s.paused
}

// yielded notes that a slice is about to be returned. Consumer.mu is held.
func (c *Consumer) yielded(f *Fetched) {
	s := f.state
	s.fetched = f.next
	s.waiting -= len(f.Records)
	if c.config.endOfPartition && f.Next >= f.End {
		c.stream.end = &EndOfPartition{Epoch: s.Epoch, Offset: f.Next}
	}
}
