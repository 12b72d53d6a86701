package strategytest

import (
	"context"
	"fmt"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

const (
	partitions = 3
	// What anything may take, of virtual time.
	limit = 10 * time.Minute
	// What may take no time is done by then.
	soon = time.Second
	// How long to wait for what should have ended, and was reported: a
	// bubble cannot end before it.
	patience = 24 * time.Hour
)

// trial is one run of the strategy under test, between a source and a sink.
type trial[In, Out any] struct {
	t      reporter
	suite  *suite[In, Out]
	rig    *arroyo.Rig
	ledger *ledger
	source *source[In]
	sink   *sink[Out]

	next    map[arroyo.Epoch]int // how many were fed
	gates   map[arroyo.Epoch]*gate
	failure error           // what the run is expected to end with
	before  map[string]bool // goroutines
}

func (s *suite[In, Out]) begin(t reporter) *trial[In, Out] {
	tr := &trial[In, Out]{
		t:      t,
		suite:  s,
		ledger: newLedger(t, &s.config),
		next:   make(map[arroyo.Epoch]int),
		gates:  make(map[arroyo.Epoch]*gate),
		before: make(map[string]bool),
	}
	synctest.Wait()
	for _, g := range bubbleGoroutines() {
		tr.before[g.id] = true
	}
	tr.sink = &sink[Out]{t: t, ledger: tr.ledger}
	tr.source = &source[In]{t: t, ledger: tr.ledger, payload: tr.payload, step: s.build(tr.sink)}
	tr.source.closed = func() {
		if !s.ends && tr.sink.closes() == 0 {
			t.Errorf("Close returned before the next step was closed")
		}
	}
	tr.rig = arroyo.NewRig(tr.source)
	tr.ledger.rig = tr.rig
	tr.rig.Watch()
	return tr
}

// assign begins an epoch of a partition.
func (tr *trial[In, Out]) assign(partition int) arroyo.Epoch {
	e := tr.rig.Assign(arroyo.Partition{Topic: "conformance", Number: int32(partition)})
	return e
}

func (tr *trial[In, Out]) assignAll() (epochs []arroyo.Epoch) {
	for p := range partitions {
		epochs = append(epochs, tr.assign(p))
	}
	return epochs
}

// shut makes Work wait, for records that are fed from here on.
func (tr *trial[In, Out]) shut(e arroyo.Epoch) { tr.gates[e] = &gate{open: make(chan struct{})} }

func (tr *trial[In, Out]) openAll() {
	for _, g := range tr.gates {
		close(g.open)
	}
	clear(tr.gates)
}

// isAtWork reports whether a function waits for a gate, so that its context has
// not ended: it is the lane's.
func (tr *trial[In, Out]) isAtWork(e arroyo.Epoch) bool { return tr.gates[e].waiting.Load() > 0 }

// feed feeds n more records of an epoch.
func (tr *trial[In, Out]) feed(e arroyo.Epoch, n int) {
	records := make([]*kgo.Record, n)
	for j := range records {
		k := tr.next[e]
		tr.next[e]++
		i := k*partitions + int(e.Number)
		r := &kgo.Record{Value: fmt.Append(nil, i)}
		if given, ok := any(tr.suite.input(i)).(*kgo.Record); ok {
			own := *given
			r = &own
		}
		r.Topic, r.Partition, r.Offset = e.Topic, e.Number, int64(k+k/7) // with gaps, as compaction leaves
		if r.Key == nil {
			r.Key = fmt.Appendf(nil, "k%d", i%5)
		}
		if r.Timestamp.IsZero() {
			r.Timestamp = time.Unix(1_700_000_000+int64(i), 0)
		}
		if g := tr.gates[e]; g != nil {
			r.Context = context.WithValue(context.Background(), gateKey{}, g)
		}
		tr.ledger.add(r, e, i)
		records[j] = r
	}
	tr.rig.Feed(e, records...)
}

func (tr *trial[In, Out]) payload(r *kgo.Record) In {
	if payload, ok := any(r).(In); ok {
		return payload
	}
	return tr.suite.input(tr.ledger.input(r))
}

// wait waits until done, or for the limit; it returns false then.
func (tr *trial[In, Out]) wait(done func() bool) bool { return waitFor(limit, done) }

func waitFor(most time.Duration, done func() bool) bool {
	for waited, step := time.Duration(0), time.Millisecond; ; {
		synctest.Wait()
		if done() {
			return true
		}
		if waited >= most {
			return false
		}
		time.Sleep(step)
		waited += step
		step = min(2*step, max(time.Second, most/600))
	}
}

// allTaken reports whether all that was fed was submitted, and no Submit goes
// on.
func (tr *trial[In, Out]) allTaken() bool {
	return tr.ledger.waiting() == 0 && tr.source.begun.Load() == tr.source.accepted.Load()
}

// taken waits for that, and reports if it does not come.
func (tr *trial[In, Out]) taken() bool {
	tr.t.Helper()
	if tr.wait(func() bool { return tr.allTaken() || tr.isDone() }) && !tr.isDone() {
		return true
	}
	if err := tr.rig.Err(); err != nil {
		tr.t.Errorf("the run ended with %v", err)
	} else {
		tr.t.Errorf("Submit does not return: after %v, %d messages are not taken in", limit, tr.ledger.waiting())
	}
	return false
}

func (tr *trial[In, Out]) isDone() bool {
	select {
	case <-tr.rig.Done():
		return true
	default:
		return false
	}
}

// stop ends the run in good order and waits for it.
func (tr *trial[In, Out]) stop() {
	tr.t.Helper()
	tr.rig.Stop()
	if !tr.wait(tr.isDone) {
		tr.t.Errorf("after %v the last Flush, or Close, has not returned", limit)
	}
}

// complete reports what of some epochs neither came out nor was settled, or is
// not settled though the next step is done with all it was given.
func (tr *trial[In, Out]) complete(epochs ...arroyo.Epoch) {
	tr.t.Helper()
	for _, e := range epochs {
		if left := tr.ledger.left(e); len(left) > 0 {
			tr.t.Errorf("%s was neither settled nor handed on, nor were %d others", at(left[0]), len(left)-1)
			return
		}
	}
	tr.ledger.checkUntouched()
	tr.sink.settle()
	for _, e := range epochs {
		if n := tr.rig.Unsettled(e); n > 0 {
			tr.t.Errorf("the next step is done with all that was handed on, but %d messages are not settled", n)
			return
		}
	}
}

// end ends the run, in whatever state it is, and looks at what is left.
func (tr *trial[In, Out]) end() {
	tr.t.Helper()
	tr.openAll()
	tr.sink.reactWith(nil)
	if !tr.isDone() {
		tr.rig.Stop()
		if !tr.wait(tr.isDone) {
			tr.rig.Abandon()
		}
		if !tr.wait(tr.isDone) {
			tr.t.Errorf("the run does not end, though its context has")
			waitFor(patience, tr.isDone)
			return
		}
	}
	synctest.Wait()
	if err := tr.rig.Err(); err != nil && tr.failure == nil {
		tr.t.Errorf("the run ended with %v", err)
	}
	if n := tr.sink.closes(); !tr.suite.ends && n != 1 {
		tr.t.Errorf("the next step was closed %d times, not once", n)
	}
	if left := tr.goroutinesLeft(); len(left) > 0 {
		tr.t.Errorf("a goroutine is left:\n%s", left[0].text)
		waitFor(patience, func() bool { return len(tr.goroutinesLeft()) == 0 })
	}
}

func (tr *trial[In, Out]) goroutinesLeft() (left []goroutine) {
	for _, g := range bubbleGoroutines() {
		if !tr.before[g.id] {
			left = append(left, g)
		}
	}
	return left
}
