package strategytest

import (
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// ledger has an entry for each record that a strategy was given.
type ledger struct {
	t      reporter
	rig    *arroyo.Rig
	config *config

	mu      sync.Mutex
	entries map[*kgo.Record]*entry
	order   []*kgo.Record // as they were fed
	last    map[orderKey]stretch
	fenced  map[arroyo.Epoch]bool
	queued  map[arroyo.Epoch]int // how many were not submitted yet
}

type entry struct {
	epoch  arroyo.Epoch
	i      int // which input it is
	handed bool
}

// orderKey is what messages have in common that are handed on in order.
type orderKey struct {
	epoch arroyo.Epoch
	key   string
}

func newLedger(t reporter, c *config) *ledger {
	return &ledger{
		t:       t,
		config:  c,
		entries: make(map[*kgo.Record]*entry),
		last:    make(map[orderKey]stretch),
		fenced:  make(map[arroyo.Epoch]bool),
		queued:  make(map[arroyo.Epoch]int),
	}
}

func (l *ledger) add(r *kgo.Record, e arroyo.Epoch, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[r] = &entry{epoch: e, i: i}
	l.order = append(l.order, r)
	l.queued[e]++
}

// submitted enters that records of one epoch reached the strategy.
func (l *ledger) submitted(e arroyo.Epoch, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.fenced[e] {
		l.queued[e] -= n
	}
}

// waiting returns how many records are still to be submitted.
func (l *ledger) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queued := range l.queued {
		n += queued
	}
	return n
}

// fence enters that an epoch is over: what was not submitted of it, is not.
func (l *ledger) fence(e arroyo.Epoch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fenced[e] = true
	delete(l.queued, e)
}

func (l *ledger) isFenced(e arroyo.Epoch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fenced[e]
}

func (l *ledger) input(r *kgo.Record) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entries[r].i
}

// handedOn enters that a message reached the next step.
func handedOn[T any](l *ledger, m arroyo.Message[T]) {
	if err := arroyo.HandedOn(l.rig, m); err != nil {
		l.t.Errorf("%v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []*kgo.Record
	for r := range m.Records() {
		records = append(records, r)
		l.entries[r].handed = true
	}
	if len(records) == 0 {
		l.t.Errorf("a message came out that stands for no record; was the slice of a Submit kept, or a message made without With, Join or Split?")
	}
	l.checkOrder(records)
}

// stretch is from the first to the last offset of a message.
type stretch struct{ first, last int64 }

// checkOrder checks that neither the first nor the last record that messages
// stand for goes back. A record may be there again, if it was made several
// messages of; in a message that has one twice the order is not looked at.
func (l *ledger) checkOrder(records []*kgo.Record) {
	if l.config.unordered {
		return
	}
	var (
		stretches = make(map[orderKey]stretch)
		twice     = make(map[*kgo.Record]bool, len(records))
		again     bool
	)
	for _, r := range records {
		again = again || twice[r]
		twice[r] = true
	}
	for _, r := range records {
		e := l.entries[r]
		k := orderKey{epoch: e.epoch}
		if l.config.key != nil {
			k.key = l.config.key(e.i)
		}
		s, ok := stretches[k]
		switch {
		case !ok:
			s = stretch{r.Offset, r.Offset}
		case r.Offset < s.last && !again:
			l.outOfOrder(k, r.Offset, s.last)
		}
		stretches[k] = stretch{min(s.first, r.Offset), max(s.last, r.Offset)}
	}
	for k, s := range stretches {
		switch before, ok := l.last[k]; {
		case ok && s.first < before.first:
			l.outOfOrder(k, s.first, before.first)
		case ok && s.last < before.last:
			l.outOfOrder(k, s.last, before.last)
		}
		l.last[k] = s
	}
}

func (l *ledger) outOfOrder(k orderKey, offset, after int64) {
	of := ""
	if k.key != "" {
		of = fmt.Sprintf(" of the same key %q", k.key)
	}
	l.t.Errorf("offset %d of %v was handed on after offset %d%s", offset, k.epoch, after, of)
}

// settled returns the verdict on each record that has one.
func (l *ledger) settled() map[*kgo.Record]arroyo.Verdict {
	verdicts := make(map[*kgo.Record]arroyo.Verdict)
	for _, v := range l.rig.Verdicts() {
		verdicts[v.Record] = v
	}
	return verdicts
}

// left returns the records of an epoch that are neither handed on nor settled.
func (l *ledger) left(e arroyo.Epoch) (left []*kgo.Record) {
	verdicts := l.settled()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.order {
		if _, ok := verdicts[r]; !ok && l.entries[r].epoch == e && !l.entries[r].handed {
			left = append(left, r)
		}
	}
	return left
}

// anyHandedOn reports whether any record of an epoch was handed on.
func (l *ledger) anyHandedOn(e arroyo.Epoch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, entry := range l.entries {
		if entry.epoch == e && entry.handed {
			return true
		}
	}
	return false
}

// allAcked reports whether all records of an epoch were acked by the strategy
// itself.
func (l *ledger) allAcked(e arroyo.Epoch) bool {
	verdicts := l.settled()
	l.mu.Lock()
	defer l.mu.Unlock()
	for r, entry := range l.entries {
		if entry.epoch == e && (entry.handed || verdicts[r].Kind != arroyo.Acked) {
			return false
		}
	}
	return true
}

// checkUntouched reports records that were handed on and have a verdict that is
// not the next step's: it has given none yet.
func (l *ledger) checkUntouched() {
	l.t.Helper()
	verdicts := l.settled()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.order {
		if v, ok := verdicts[r]; ok && l.entries[r].handed {
			l.t.Errorf("%s was handed on and %s as well", at(r), v.Kind)
			return
		}
	}
}

func at(r *kgo.Record) string { return fmt.Sprintf("offset %d of partition %d", r.Offset, r.Partition) }
