package chain

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// place is a record's.
type place struct {
	partition int32
	offset    int64
}

// entry is a record of a topic.
type entry struct {
	place
	key string
	n   int   // of its key, from 0
	by  by    // who wrote it; the zero value: whoever filled the first topic
	of  place // the record that it was made of
}

// by is an assignment of a partition to a member.
type by struct {
	life  string
	epoch uint64
}

// epoch is what became of an assignment.
type epoch struct {
	assigned  time.Time
	committed int64  // the highest offset that the brokers took
	excuse    string // why its last work may be done again; "": it ended in good order
}

// checker reads the logs of two topics of which one was made of the other.
type checker struct {
	name   string
	in     map[place]entry
	out    []entry // by partition and offset
	epochs map[by]*epoch

	late       int // records that came again behind newer ones, with an excuse
	again      int // records that are there more than once
	violations []string
}

func (c *checker) violation(format string, args ...any) {
	c.violations = append(c.violations, c.name+": "+fmt.Sprintf(format, args...))
}

func sortEntries(es []entry) {
	slices.SortFunc(es, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
}

// check looks at one hop of the chain.
func (c *checker) check() {
	byKey := make(map[string][]entry)
	arrived := make(map[place]int)
	for _, e := range c.out {
		in, ok := c.in[e.of]
		switch {
		case !ok:
			c.violation("%v is made of %v, which is not there", e.place, e.of)
			continue
		case in.key != e.key || in.n != e.n:
			c.violation("%v has %s:%d, and %v of which it is made %s:%d", e.place, e.key, e.n, e.of, in.key, in.n)
			continue
		case c.epochs[e.by] == nil:
			c.violation("%v is of %v, which had no partition", e.place, e.by)
			continue
		}
		arrived[e.of]++
		byKey[e.key] = append(byKey[e.key], e)
	}
	for p, in := range c.in {
		switch n := arrived[p]; {
		case n == 0:
			c.violation("lost: %v (%s:%d)", p, in.key, in.n)
		case n > 1:
			c.again++
		}
	}
	for _, es := range byKey {
		c.order(es)
		c.duplicates(es)
	}
	slices.Sort(c.violations)
}

// order checks the outputs of one key, which are all in one partition.
func (c *checker) order(es []entry) {
	ofEpoch := make(map[by]int64)
	first := int64(-1)
	seen := make(map[int64]bool)
	last := make(map[int64]int) // index of the last output
	for i, e := range es {
		if e.partition != es[0].partition {
			c.violation("%s:%d is in another partition than %s:%d", e.key, e.n, e.key, es[0].n)
		}
		o := e.of.offset
		// An epoch works in order, and does nothing twice.
		if before, ok := ofEpoch[e.by]; ok && o <= before {
			c.violation("%v did offset %d (%s:%d) after offset %d", e.by, o, e.key, e.n, before)
		}
		ofEpoch[e.by] = o
		// Whoever goes on begins no later than where the one before got.
		if !seen[o] {
			if o < first {
				c.violation("out of order: offset %d (%s:%d) came for the first time after offset %d", o, e.key, e.n, first)
			}
			first = max(first, o)
			seen[o] = true
		}
		last[o] = i
	}
	// And who did something again went on to where the one before had got,
	// so the last of each are in order as well: except for what was under
	// way of somebody who is cut off.
	newest := -1
	for _, o := range sortedKeys(last) {
		if i := last[o]; i > newest {
			newest = i
			continue
		}
		e := es[newest]
		if c.epochs[e.by].excuse == "" {
			c.violation("out of order: offset %d (%s:%d) came again after all of a later one, by %v, who was well", e.of.offset, e.key, e.n, e.by)
			continue
		}
		c.late++
	}
}

func sortedKeys(m map[int64]int) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// duplicates checks what one key's outputs repeat: what the one who did it
// before had not committed when something happened to it.
func (c *checker) duplicates(es []entry) {
	done := make(map[int64][]entry)
	for _, e := range es {
		done[e.of.offset] = append(done[e.of.offset], e)
	}
	for o, again := range done {
		slices.SortFunc(again, func(a, b entry) int { return c.epochs[a.by].assigned.Compare(c.epochs[b.by].assigned) })
		for _, e := range again[:len(again)-1] {
			ep := c.epochs[e.by]
			switch {
			case ep.excuse == "":
				c.violation("offset %d of partition %d (%s:%d) was done again after %v, who gave up the partition in good order", o, e.of.partition, e.key, e.n, e.by)
			case o < ep.committed:
				c.violation("offset %d of partition %d (%s:%d) was done again, though %v had committed %d", o, e.of.partition, e.key, e.n, e.by, ep.committed)
			}
		}
	}
}

// endToEnd checks the last topic against what was put into the first.
func endToEnd(out []entry, keys, records int) (violations []string) {
	next := make(map[string]int)
	for _, e := range out {
		if e.n > next[e.key] {
			violations = append(violations, fmt.Sprintf("end to end: %s:%d came before %s:%d", e.key, e.n, e.key, next[e.key]))
		}
		next[e.key] = max(next[e.key], e.n+1)
	}
	total := 0
	for _, n := range next {
		total += n
	}
	if len(next) != keys || total != records {
		violations = append(violations, fmt.Sprintf("end to end: %d records of %d keys arrived, want %d of %d", total, len(next), records, keys))
	}
	return violations
}
