package arroyo

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The model: what spans and watermarks say, said by a map.
type model struct {
	offsets []int64 // seen, in order
	done    map[int64]bool
}

func (m *model) watermark() (int64, bool) {
	if len(m.offsets) == 0 {
		return 0, false
	}
	for _, o := range m.offsets {
		if !m.done[o] {
			return o, true
		}
	}
	return m.offsets[len(m.offsets)-1] + 1, true
}

// testProgress makes an epoch's progress outside of a run.
func testProgress() (*progress, *tracker) {
	run := &tracker{wake: func() {}, spanSize: spanSize}
	run.rejected = func(*span, int, error) {}
	run.misused = func(error) {}
	lane := newRecordLane(&run.watched, laneEvents{})
	return &progress{state: &epochState{}, run: run, lane: lane, committed: -1}, run
}

func appendTo(p *progress, records []*kgo.Record) []span {
	return p.append(records, position{records[len(records)-1].Offset + 1, -1}, time.Time{})
}

func messagesOf(spans []span) (msgs []Message[*kgo.Record]) {
	for i := range spans {
		for j, r := range spans[i].records {
			msgs = append(msgs, Message[*kgo.Record]{Payload: r, span: &spans[i], index: uint8(j)})
		}
	}
	return msgs
}

// run plays a script of bytes on an epoch and on the model.
func playProgress(t *testing.T, script []byte) {
	p, run := testProgress()
	m := model{done: make(map[int64]bool)}
	verdicts := make(map[int64]bool)
	var msgs []Message[*kgo.Record]
	next := int64(0)
	take := func() byte {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return b
	}
	for len(script) > 0 {
		switch op := take(); op % 8 {
		case 0, 1: // fetch
			n := int(take()) + 1
			records := make([]*kgo.Record, n)
			for i := range records {
				next += int64(1 + take()%3/2) // gaps, as compaction leaves
				records[i] = &kgo.Record{Offset: next}
				m.offsets = append(m.offsets, next)
			}
			msgs = append(msgs, messagesOf(appendTo(p, records))...)
		case 2, 3: // verdicts of a run of messages
			if len(msgs) == 0 {
				continue
			}
			from := int(take()) * len(msgs) / 256
			some := msgs[from:min(len(msgs), from+int(take()))]
			AckAll(some)
			for _, msg := range some {
				if o := msg.Payload.Offset; !verdicts[o] {
					verdicts[o], m.done[o] = true, true
				}
			}
		default: // the verdict of one, perhaps through a derived message
			if len(msgs) == 0 {
				continue
			}
			msg := msgs[int(take())*len(msgs)/256]
			derived := With(msg, 0)
			switch take() % 3 {
			case 1:
				derived = Join(0, []Message[*kgo.Record]{msg})
			case 2:
				children := Split(msg, []int{1, 2, 3})
				children[0].Ack()
				children[2].Ack()
				derived = children[1]
			}
			first := !verdicts[msg.Payload.Offset]
			verdicts[msg.Payload.Offset] = true
			switch op % 8 {
			case 4, 5:
				derived.Ack()
				if first {
					m.done[msg.Payload.Offset] = true
				}
			case 6:
				derived.Return()
			case 7:
				derived.Reject(errors.New("bad"))
			}
		}
		for _, msg := range msgs {
			if msg.Settled() != verdicts[msg.Payload.Offset] {
				t.Fatalf("offset %d: settled %v, want %v", msg.Payload.Offset, msg.Settled(), !msg.Settled())
			}
		}
		p.advance()
		want, known := m.watermark()
		if p.known != known || known && p.watermark.offset != want {
			t.Fatalf("watermark %d (known: %v), want %d (%v)", p.watermark.offset, p.known, want, known)
		}
		pending := 0
		for _, s := range p.spans[p.head:] {
			if !s.settled.Load() {
				pending += len(s.records)
			}
		}
		if got := run.inFlight.Load(); got != int64(pending) {
			t.Fatalf("%d records in flight, want %d", got, pending)
		}
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte{0, 5, 0, 0, 0, 0, 0, 0, 2, 0, 3, 4, 200, 0})
	f.Add([]byte{0, 255, 7, 10, 0, 2, 0, 255, 6, 100, 2})
	f.Fuzz(playProgress)
}

func TestProgressAgainstTheModel(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		script := make([]byte, 20+rng.IntN(600))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		playProgress(t, script)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Whoever is first gives the verdict, from any goroutine, and exactly one of
// them does.
func TestTheFirstVerdictStands(t *testing.T) {
	for range 200 {
		p, run := testProgress()
		var rejections sync.Map
		run.rejected = func(s *span, i int, err error) { rejections.Store(s.records[i].Offset, err) }
		p.draining.Store(true)
		records := make([]*kgo.Record, 100)
		for i := range records {
			records[i] = &kgo.Record{Offset: int64(i)}
		}
		spans := appendTo(p, records)
		msgs := messagesOf(spans)
		var wg sync.WaitGroup
		for _, verdict := range []func(Message[*kgo.Record]){
			Message[*kgo.Record].Ack,
			Message[*kgo.Record].Return,
			func(m Message[*kgo.Record]) { m.Reject(errors.New("bad")) },
		} {
			wg.Go(func() {
				for _, m := range msgs {
					verdict(m)
				}
			})
		}
		wg.Wait()
		for i := range spans {
			s := &spans[i]
			if s.decided.Load() != s.full {
				t.Fatal("not everything is decided")
			}
			if s.rejected.Load()&s.returned.Load() != 0 {
				t.Fatal("a record was rejected and returned")
			}
			for j := range s.records {
				_, reported := rejections.Load(s.records[j].Offset)
				if marked := s.rejected.Load()&(1<<j) != 0; marked != reported {
					t.Fatalf("rejected: %v, reported: %v", marked, reported)
				}
			}
			if s.settled.Load() != (s.rejected.Load() == 0) {
				t.Fatal("settled is wrong")
			}
		}
	}
}

func TestSplitVerdicts(t *testing.T) {
	bad := errors.New("bad")
	for _, tt := range []struct {
		name     string
		verdicts []func(Message[int])
		want     string
	}{
		{"all acked", []func(Message[int]){Message[int].Ack, Message[int].Ack}, "acked"},
		{"one rejected", []func(Message[int]){func(m Message[int]) { m.Reject(bad) }, Message[int].Ack}, "rejected"},
		{"one returned", []func(Message[int]){func(m Message[int]) { m.Reject(bad) }, Message[int].Return}, "returned"},
		{"one missing", []func(Message[int]){Message[int].Ack}, "pending"},
		{"twice the same", []func(Message[int]){Message[int].Ack, func(Message[int]) {}}, "pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, run := testProgress()
			p.draining.Store(true)
			var why error
			run.rejected = func(_ *span, _ int, err error) { why = err }
			spans := appendTo(p, []*kgo.Record{{Offset: 5}})
			children := Split(messagesOf(spans)[0], []int{1, 2})
			for i, verdict := range tt.verdicts {
				verdict(children[i])
			}
			children[0].Ack() // late
			s := &spans[0]
			got := "pending"
			switch {
			case s.returned.Load() != 0:
				got = "returned"
			case s.rejected.Load() != 0:
				got = "rejected"
				if why != bad {
					t.Errorf("rejected with %v, want the first error", why)
				}
			case s.decided.Load() != 0:
				got = "acked"
			}
			if got != tt.want {
				t.Errorf("the parent is %s, want %s", got, tt.want)
			}
		})
	}
	p, _ := testProgress()
	m := messagesOf(appendTo(p, []*kgo.Record{{Offset: 5}}))[0]
	if Split(m, []int(nil)); !m.Settled() {
		t.Error("a message that was split into nothing is not acked")
	}
}

func TestSplitIntoMany(t *testing.T) {
	p, _ := testProgress()
	m := messagesOf(appendTo(p, []*kgo.Record{{Offset: 5}}))[0]
	children := Split(m, make([]int, 1000))
	for i, c := range children {
		if m.Settled() {
			t.Fatalf("the parent is settled after %d of 1000 children", i)
		}
		if c.Record().Offset != 5 {
			t.Fatal("a child does not lead back to its record")
		}
		c.Ack()
	}
	if !m.Settled() {
		t.Error("the parent is not settled")
	}
}

func TestMessagesWithoutARecord(t *testing.T) {
	m := Message[int]{Payload: 7}
	m.Ack()
	m.Reject(errors.New("bad"))
	m.Return()
	AckAll([]Message[int]{m})
	if m.Settled() || m.Fenced() || m.Record() != nil || m.Epoch() != (Epoch{}) {
		t.Error("a message without a record has more than its payload")
	}
	if With(m, "x").Payload != "x" {
		t.Error("With lost the payload")
	}
	for range m.Records() {
		t.Error("a message without a record has records")
	}
	joined := Join("x", []Message[int]{m, m})
	joined.Ack()
	if joined.Record() != nil || joined.Fenced() {
		t.Error("a join of messages without records has one")
	}
	if n := len(Split(m, []int{1, 2})); n != 2 {
		t.Errorf("split into %d, want 2", n)
	}
}

func TestJoinLeadsBackToAllRecords(t *testing.T) {
	p, _ := testProgress()
	msgs := messagesOf(appendTo(p, []*kgo.Record{{Offset: 5}, {Offset: 6}, {Offset: 7}}))
	joined := Join("x", []Message[*kgo.Record]{msgs[0], msgs[2]})
	var offsets []int64
	for r := range joined.Records() {
		offsets = append(offsets, r.Offset)
	}
	if len(offsets) != 2 || offsets[0] != 5 || offsets[1] != 7 {
		t.Errorf("records at %v, want 5 and 7", offsets)
	}
	msgs[0].Reject(errors.New("bad"))
	joined.Ack()
	if !msgs[2].Settled() || msgs[1].Settled() {
		t.Error("the verdict of a join has to go to its members, and no others")
	}
	if msgs[0].span.rejected.Load() == 0 {
		t.Error("a member's own verdict was overruled")
	}
}

// Looking for the oldest record while it is settled, on another goroutine.
func TestOldestWhileItIsSettled(t *testing.T) {
	p, _ := testProgress()
	for range 500 {
		msgs := messagesOf(appendTo(p, recordsFrom(p.watermark.offset, spanSize)))
		var acks sync.WaitGroup
		acks.Go(func() {
			for _, m := range msgs {
				m.Ack()
			}
		})
		for {
			if _, _, ok := p.oldest(); !ok {
				break
			}
		}
		acks.Wait()
		p.advance()
	}
}
