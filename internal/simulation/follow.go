package simulation

import (
	"slices"
	"time"
)

// I14, from what groups committed and what those who follow were given.

const (
	// How long after a group was set back those who follow may not know it
	// yet: they ask for its offsets every 300 ms.
	knownWithin = time.Second
	// How long what may be given can take to be, where nothing is in its way:
	// the start of an epoch, and fetches.
	promptWithin = 5 * time.Second
	// How long the commit log may be behind a commit: kgo's linger, and a bit.
	// What a member commits that crashes sooner is told of by the next owner.
	loggedWithin = 50 * time.Millisecond
)

// timeline is what a group had committed of a partition, over time; before that
// nothing.
type timeline []mark

type mark struct {
	at     time.Time
	offset int64
}

// most returns the most that was committed at some time since then.
func (l timeline) most(since time.Time) (offset int64) {
	for _, m := range slices.Backward(l) {
		offset = max(offset, m.offset)
		if !m.at.After(since) {
			break
		}
	}
	return offset
}

// gates are the timelines of all groups that are followed, by partition.
type gates map[string]map[int32]timeline

func (g gates) add(group string, f fact) {
	if g[group] == nil {
		g[group] = make(map[int32]timeline)
	}
	g[group][f.partition] = append(g[group][f.partition], mark{f.at, f.offset})
}

func (w *world) followed() []string {
	if w.plan.audit != nil {
		return []string{group, audit}
	}
	return []string{group}
}

// most is the most that may have been let through since then.
func (c *checker) most(g gates, p int32, since time.Time) (offset int64) {
	for i, name := range c.w.followed() {
		if at := g[name][p].most(since); i == 0 || at < offset {
			offset = at
		}
	}
	return offset
}

// follow checks that nothing was given early, and that nothing came late.
func (c *checker) follow() {
	if c.w.plan.follows == "" {
		return
	}
	g, told := make(gates), make(gates)
	crashed := make(map[*life]time.Time)
	for _, f := range c.w.history.facts {
		if f.kind == factCrashed {
			crashed[f.life] = f.at
		}
	}
	highest := make(map[int32]int64)
	given := make(map[int32]map[int64]time.Time)
	for p := range c.log {
		given[p] = make(map[int64]time.Time)
	}
	for _, f := range c.w.history.facts {
		switch f.kind {
		case factAsked:
			// Members set nothing back.
			if f.accepted && f.offset > highest[f.partition] {
				highest[f.partition] = f.offset
				g.add(group, f)
				if at, ok := crashed[f.life]; c.w.plan.follows != "log" || !ok || at.Sub(f.at) > loggedWithin {
					told.add(group, f)
				}
			}
		case factAudit:
			g.add(audit, f)
			told.add(audit, f)
		case factGiven:
			since := f.at.Add(-knownWithin)
			if c.w.delayed() {
				since = time.Time{} // what they know may be old
			}
			if at := c.most(g, f.partition, since); f.offset >= at {
				c.violation(f, "I14: given when the groups that are followed had committed %d", at)
			}
			if _, again := given[f.partition][f.offset]; !again {
				given[f.partition][f.offset] = f.at
			}
		}
	}
	for p, offsets := range c.log {
		for _, o := range offsets {
			if given[p][o].IsZero() {
				c.w.violation("I14: offset %d of partition %d (%s) was not given to those who follow", o, p, c.ids[p][o])
			}
		}
	}
	if !c.w.plan.troubled {
		c.prompt(told, given)
	}
}

// holding is a time in which a member that follows had a partition.
type holding struct {
	life     *life
	from, to time.Time
}

func (c *checker) holdings() map[int32][]*holding {
	all := make(map[int32][]*holding)
	now := make(map[assignment]*holding)
	for _, f := range c.w.history.facts {
		if f.life == nil || !f.life.member.plan.follows {
			continue
		}
		switch f.kind {
		case factAssigned:
			h := &holding{life: f.life, from: f.at}
			now[assignment{f.life, f.epoch}] = h
			all[f.partition] = append(all[f.partition], h)
		case factRevoked, factLost:
			if h := now[assignment{f.life, f.epoch}]; h != nil {
				h.to = f.at
			}
		case factCrashed, factEnded:
			for a, h := range now {
				if a.life == f.life && h.to.IsZero() {
					h.to = f.at
				}
			}
		}
	}
	return all
}

// prompt checks that a member that has a partition is given what may be given
// of it.
func (c *checker) prompt(g gates, given map[int32]map[int64]time.Time) {
	holdings := c.holdings()
	for p, offsets := range c.log {
		open := c.openings(g, p)
		for _, o := range offsets {
			for _, h := range holdings[p] {
				if late := lateness(open, o, h, given[p][o]); late > h.life.member.plan.promptWithin(len(c.w.produced)) {
					c.w.violation("I14: %s was not given offset %d of partition %d (%s) for %v although it might", h.life.name, o, p, c.ids[p][o], late)
				}
			}
		}
	}
}

func (m *memberPlan) promptWithin(records int) time.Duration {
	if m.pipeline.pace > 0 && m.partitioned {
		return time.Hour // pauses of those that are full add up
	}
	return promptWithin + time.Duration(records)*m.pipeline.pace
}

// openings returns how far a partition might be read, over time.
func (c *checker) openings(g gates, p int32) (open timeline) {
	var times []time.Time
	for _, name := range c.w.followed() {
		for _, m := range g[name][p] {
			times = append(times, m.at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range slices.Compact(times) {
		limit := int64(-1)
		for _, name := range c.w.followed() {
			if now := g[name][p].now(at); limit < 0 || now < limit {
				limit = now
			}
		}
		open = append(open, mark{at, limit})
	}
	return open
}

// now returns what was committed at a time.
func (l timeline) now(at time.Time) (offset int64) {
	for _, m := range l {
		if !m.at.After(at) {
			offset = m.offset
		}
	}
	return offset
}

// lateness returns for how long at a stretch an offset might have been given to
// a member that held its partition, and was not.
func lateness(open timeline, offset int64, h *holding, given time.Time) (late time.Duration) {
	end := h.to
	if !given.IsZero() && given.Before(end) {
		end = given
	}
	var since time.Time // it is open; zero: it is not
	stretch := func(to time.Time) {
		if !since.IsZero() {
			late = max(late, earlier(to, end).Sub(later(since, h.from)))
		}
	}
	for _, m := range open {
		switch {
		case m.offset <= offset:
			stretch(m.at)
			since = time.Time{}
		case since.IsZero():
			since = m.at
		}
	}
	stretch(end)
	return late
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
