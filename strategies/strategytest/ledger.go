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
	last    map[orderKey]int64
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
		last:    make(map[orderKey]int64),
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
	some := false
	l.mu.Lock()
	defer l.mu.Unlock()
	for r := range m.Records() {
		some = true
		e := l.entries[r]
		e.handed = true
		l.checkOrder(r, e)
	}
	if !some {
		l.t.Errorf("a message came out that stands for no record; was the slice of a Submit kept, or a message made without With, Join or Split?")
	}
}

func (l *ledger) checkOrder(r *kgo.Record, e *entry) {
	if l.config.unordered {
		return
	}
	k := orderKey{epoch: e.epoch}
	if l.config.key != nil {
		k.key = l.config.key(e.i)
	}
	if last, ok := l.last[k]; ok && r.Offset < last {
		l.t.Errorf("offset %d of %v was handed on after offset %d%s", r.Offset, e.epoch, last, ofKey(k.key))
	}
	l.last[k] = r.Offset
}

func ofKey(key string) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf(" of the same key %q", key)
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

// handed returns which inputs of an epoch were handed on.
func (l *ledger) handed(e arroyo.Epoch) map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	inputs := make(map[int]bool)
	for _, entry := range l.entries {
		if entry.epoch == e && entry.handed {
			inputs[entry.i] = true
		}
	}
	return inputs
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
