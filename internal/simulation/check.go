package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/arroyo-go/arroyo"
)

// assignment is one epoch of one life, as the hooks told of it.
type assignment struct {
	life  *life
	epoch arroyo.Epoch
}

// session is the members' session timeout: kgo's and the brokers' default.
const session = 45 * time.Second

// checker reads the history.
type checker struct {
	w          *world
	log        map[int32][]int64          // offsets of the records to be processed
	ids        map[int32]map[int64]string // of these
	base       map[int32]int64            // where the group began
	startAsked map[int32]bool             // somebody asked to commit the log's start
	done       map[int32]map[int64]bool
	first      map[int32]int // of log: the first that is not done
	ended      map[assignment]time.Time
	current    map[*life]map[int32]assignment // of a life, by partition
}

func (w *world) check() {
	w.judgeLastAsked(w.broker.Cluster().GroupInfo(group))
	c := &checker{
		w:          w,
		log:        make(map[int32][]int64),
		ids:        make(map[int32]map[int64]string),
		base:       make(map[int32]int64),
		startAsked: make(map[int32]bool),
		done:       make(map[int32]map[int64]bool),
		first:      make(map[int32]int),
		ended:      make(map[assignment]time.Time),
		current:    make(map[*life]map[int32]assignment),
	}
	for _, r := range w.broker.Records(topic) {
		if !w.produced[string(r.Value)] {
			continue
		}
		if c.ids[r.Partition] == nil {
			c.ids[r.Partition] = make(map[int64]string)
			c.done[r.Partition] = make(map[int64]bool)
		}
		c.log[r.Partition] = append(c.log[r.Partition], r.Offset)
		c.ids[r.Partition][r.Offset] = string(r.Value)
	}
	for _, offsets := range c.log {
		slices.Sort(offsets)
	}
	c.order()
	c.outcomes()
	c.duplicates()
	c.ends()
	c.follow()
}

func (c *checker) violation(f fact, format string, args ...any) {
	c.w.violation("%s\n      at %s", fmt.Sprintf(format, args...), f)
}

// order goes through the history once, in order.
func (c *checker) order() {
	type key struct {
		assignment
		kind factKind
	}
	last := make(map[key]int64)
	cut := make(map[*life]time.Time)
	for _, f := range c.w.history.facts {
		a := assignment{f.life, f.epoch}
		switch f.kind {
		case factAssigned:
			if c.current[f.life] == nil {
				c.current[f.life] = make(map[int32]assignment)
			}
			c.current[f.life][f.partition] = a
		case factRevoked, factLost:
			c.ended[a] = f.at
		case factCut:
			cut[f.life] = f.at
		case factHealed:
			delete(cut, f.life)
		case factAbandoned:
			if c.w.plan.calm && f.life.member.plan.pipeline.pace == 0 {
				c.violation(f, "I8: a drain was past its deadline, and nothing was in its way")
			}
		case factHanded:
			if since, is := cut[f.life]; is && f.at.Sub(since) > session {
				c.violation(f, "I3: handed out %v after the member was cut off; its session has ended", f.at.Sub(since))
			}
			if at, over := c.ended[a]; over && f.at.After(at) {
				c.violation(f, "I3: handed out %v after its epoch ended", f.at.Sub(at))
			}
			fallthrough
		case factGiven:
			k := key{a, f.kind}
			if before, ok := last[k]; ok && f.offset <= before {
				c.violation(f, "I4: handed out after offset %d", before)
			}
			last[k] = f.offset
		case factDone, factLetter:
			if c.ids[f.partition][f.offset] != f.id {
				c.violation(f, "the log has %q there", c.ids[f.partition][f.offset])
			} else {
				c.done[f.partition][f.offset] = true
			}
			if f.kind == factLetter != isInvalid(f.id) {
				c.violation(f, "I7: a dead letter of a valid message, or an invalid one that was processed")
			}
		case factAsked:
			c.accepted(f)
			if f.life == nil || f.life.crashed.Load() {
				continue
			}
			// One that was refused before may be tried again behind a newer
			// one that was refused as well.
			k := key{c.current[f.life][f.partition], factCommit}
			if before, ok := last[k]; ok && f.offset < before && !c.w.delayed() {
				c.violation(f, "I2: %d was committed before in the same epoch", before)
			}
			if f.accepted {
				last[k] = f.offset
			}
		case factCommit:
			if f.life.member.plan.follows {
				continue
			}
			c.commit(f)
		}
	}
}

// accepted notes what others may rely on: what the brokers took. Where the group
// begins at the end, the first such offset is its start, and nothing before that
// is its concern. A start that was refused, or asked for by a member that is
// gone, is nobody's.
func (c *checker) accepted(f fact) {
	p := f.partition
	if f.offset == 0 {
		c.startAsked[p] = true
	}
	if !f.accepted {
		return
	}
	if f.owner != "" {
		c.violation(f, "I2: committed, though the brokers have given the partition to %s", f.owner)
	}
	if _, begun := c.base[p]; begun {
		return
	}
	c.base[p] = 0
	if c.w.plan.latest {
		c.base[p] = f.offset
	} else if !c.startAsked[p] {
		c.violation(f, "I15: the group begins at %d, not at the start", f.offset)
	}
}

// commit checks one commit against what was done until then.
func (c *checker) commit(f fact) {
	p := f.partition
	base, begun := c.base[p]
	if !begun && c.w.plan.latest {
		return // it would have said where the group begins, but was refused
	}
	offsets := c.log[p]
	i := c.first[p]
	for i < len(offsets) && (offsets[i] < base || c.done[p][offsets[i]]) {
		i++
	}
	c.first[p] = i
	if i < len(offsets) && offsets[i] < f.offset {
		c.violation(f, "I1: offset %d (%s) has no outcome yet", offsets[i], c.ids[p][offsets[i]])
	}
	a, held := c.current[f.life][p]
	if at, over := c.ended[a]; held && over && f.at.After(at) && !c.w.delayed() {
		c.violation(f, "I2: committed %v after the epoch ended", f.at.Sub(at))
	}
}

// outcomes checks that every record has one at the end.
func (c *checker) outcomes() {
	for p, offsets := range c.log {
		for _, o := range offsets {
			base, begun := c.base[p]
			if !c.done[p][o] && (!begun || o >= base) {
				c.w.violation("I1: lost: offset %d of partition %d (%s); the group began at %d", o, p, c.ids[p][o], base)
			}
		}
	}
}

// duplicates checks that what came twice had a reason to.
func (c *checker) duplicates() {
	excused := make(map[assignment]string)
	lives := make(map[*life]string)
	begun := make(map[assignment]int)
	for i, f := range c.w.history.facts {
		a := assignment{f.life, f.epoch}
		switch f.kind {
		case factAssigned:
			begun[a] = i
		case factLost, factAbandoned:
			excused[a] = string(f.kind)
		case factCrashed:
			lives[f.life] = string(f.kind)
		case factEnded:
			if f.excuse != "" {
				lives[f.life] = f.excuse
			}
		}
	}
	seen := make(map[string]fact)
	for _, f := range c.w.history.facts {
		if f.kind != factDone && f.kind != factLetter || f.excuse == dropped {
			continue
		}
		before, twice := seen[f.id]
		seen[f.id] = f
		if !twice {
			continue
		}
		was := assignment{before.life, before.epoch}
		if f.kind == factDone && before.life == f.life && before.epoch == f.epoch {
			c.violation(f, "I5: twice in the same epoch")
			continue
		}
		// What a call does that was not waited for, when it returns at last, is not new work.
		// Nor is what a member does that is cut off and does not know yet that the group has
		// gone on without it, if it has ended before it learned that.
		is := assignment{f.life, f.epoch}
		late := excused[is] != "" || lives[f.life] != "" && begun[is] < begun[was]
		if before.life.member.plan.pipeline.mayLeaveGaps() {
			continue
		}
		if excused[was] == "" && lives[before.life] == "" && !late && f.kind == factDone {
			c.violation(f, "I5: done before, in an epoch that ended in good order\n      at %s", before)
		}
	}
}

// ends checks how long those took to leave that were told to.
func (c *checker) ends() {
	for _, f := range c.w.history.facts {
		if f.kind != factEnded || f.left.IsZero() {
			continue
		}
		took, plan := f.at.Sub(f.left), f.life.member.plan
		if took > plan.drain+time.Second {
			c.violation(f, "I8: Run returned %v after it was told to leave; its DrainTimeout is %v", took, plan.drain)
		}
		if within, ok := c.w.promptly(plan); ok && took > within && !c.refused(f.life, f.left) {
			c.violation(f, "I8: Run returned %v after it was told to leave; what it had begun takes %v at the most", took, within)
		}
	}
}

// refused reports whether the group refused commits of a life, as it does while a
// rebalance waits for a member that is gone: the same was asked for again.
func (c *checker) refused(l *life, since time.Time) bool {
	type position struct {
		partition int32
		offset    int64
	}
	asked := make(map[position]bool)
	for _, f := range c.w.history.facts {
		if f.kind != factCommit || f.life != l || f.at.Before(since) {
			continue
		}
		at := position{f.partition, f.offset}
		if asked[at] {
			return true
		}
		asked[at] = true
	}
	return false
}

// delayed reports whether requests of this plan may arrive late or never, so
// that when they arrive says nothing of when they were sent.
func (w *world) delayed() bool {
	return w.has("network", "take long", "not answered", "closed connections", "broker goes down", "commits fail")
}

// has reports whether the plan has a step of one of these kinds.
func (w *world) has(kinds ...string) bool {
	return slices.ContainsFunc(w.plan.steps, func(s step) bool {
		return slices.ContainsFunc(kinds, func(kind string) bool { return strings.Contains(s.what, kind) })
	})
}
