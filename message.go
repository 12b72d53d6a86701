package arroyo

import (
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Partition names one partition of a topic.
type Partition struct {
	Topic  string
	Number int32
}

// String returns the partition as topic/number.
func (p Partition) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// Epoch is one assignment of one partition to this consumer. A partition that
// is taken away and given back has a new epoch, so state that is keyed by
// Epoch cannot outlive its assignment. N counts per Consumer and means nothing
// outside of it; to fence a store elsewhere, compare-and-swap on the offset
// that is stored there.
type Epoch struct {
	Partition
	N uint64
}

// String returns the epoch as topic/number#N.
func (e Epoch) String() string { return fmt.Sprintf("%s#%d", e.Partition, e.N) }

// Message is a payload on its way through a pipeline. It remembers the record
// or records it came from, so that its verdict settles them.
//
// A message has one of three verdicts: Ack (done with it), Reject (it can
// never be processed) or Return (not worked on here; its partition's next
// owner reads it). The first verdict stands, later ones are ignored, and
// verdicts may be given from any goroutine.
//
// The zero Message with a payload is valid: its verdicts do nothing. So a user
// function can be tested as f(ctx, arroyo.Message[T]{Payload: x}).
type Message[T any] struct {
	Payload T

	span  *span
	index uint8
}

// BatchOf is a message whose payload is a batch of messages.
type BatchOf[T any] = Message[[]Message[T]]

// Ack settles the message: its work is done.
func (m Message[T]) Ack() {
	if m.span != nil {
		m.span.ack(1 << m.index)
	}
}

// Reject says that the message can never be processed, and why. It never
// blocks. Without a dead-letter policy a rejected message ends the run with an
// error: nothing is dropped silently.
func (m Message[T]) Reject(err error) {
	if m.span != nil {
		m.span.reject(m.index, err)
	}
}

// Return says that the message was not worked on, so that its partition's next
// owner has to read it. That is possible only while its epoch is being
// drained; at any other time a returned message ends the run, because nobody
// would read it again.
func (m Message[T]) Return() {
	if m.span != nil {
		m.span.giveBack(1 << m.index)
	}
}

// ReturnIfDraining returns what of the message may be returned: of a joined
// message, the members whose epoch is being drained. It reports whether the
// message is settled now. Steps that try again and again call it when
// Draining says so.
func (m Message[T]) ReturnIfDraining() (settled bool) {
	if m.span != nil {
		m.span.giveBackDraining(m.index)
	}
	return m.Settled()
}

// Settled reports whether the message has its verdict.
func (m Message[T]) Settled() bool {
	return m.span != nil && m.span.decided.Load()&(1<<m.index) != 0
}

// Fenced reports whether the message's epoch is over: its partition was lost,
// or its revocation is past its deadline. A fenced message's verdict counts
// for nothing, so a step leaves it alone. A joined message is fenced when all
// of its members are.
func (m Message[T]) Fenced() bool {
	return m.span != nil && m.span.mayBeFenced.Load() && m.span.fenced(m.index)
}

// Epoch returns the epoch of the message's record; of a joined message, that
// of its first member. It is zero for a message without a record.
func (m Message[T]) Epoch() Epoch {
	if r := m.root(); r.span != nil {
		return r.span.owner.state.Epoch
	}
	return Epoch{}
}

// Record returns the record that the message came from; of a joined message,
// the first. It is nil for a message without a record. Do not change it: other
// steps see the same record.
func (m Message[T]) Record() *kgo.Record {
	if r := m.root(); r.span != nil {
		return r.span.records[r.index]
	}
	return nil
}

// Records yields every record that the message came from.
func (m Message[T]) Records() iter.Seq[*kgo.Record] {
	return func(yield func(*kgo.Record) bool) {
		if m.span != nil {
			slot{m.span, m.index}.each(func(s slot) bool { return yield(s.span.records[s.index]) })
		}
	}
}

// Epochs yields the epochs of the records that the message came from, one for
// each run of records of the same epoch.
func (m Message[T]) Epochs() iter.Seq[Epoch] {
	return func(yield func(Epoch) bool) {
		if m.span == nil {
			return
		}
		var last *progress
		slot{m.span, m.index}.each(func(s slot) bool {
			if s.span.owner == last {
				return true
			}
			last = s.span.owner
			return yield(last.state.Epoch)
		})
	}
}

func (m Message[T]) root() slot {
	s := slot{m.span, m.index}
	if s.span == nil || s.span.from == nil {
		return s
	}
	return s.root()
}

// AckAll acks every message. It is what calling Ack on each does, at a
// fraction of the cost.
func AckAll[T any](msgs []Message[T]) {
	for i := 0; i < len(msgs); {
		s, mask := msgs[i].span, uint64(0)
		for ; i < len(msgs) && msgs[i].span == s; i++ {
			mask |= 1 << (msgs[i].index % spanSize)
		}
		if s != nil {
			s.ack(mask)
		}
	}
}

// Unfenced returns the messages that are not fenced, in order and in the same
// memory. It is what slices.DeleteFunc with Fenced does, at a fraction of the
// cost.
func Unfenced[T any](msgs []Message[T]) []Message[T] {
	var known *span // a source span, of which all messages are fenced or none is
	kept := msgs[:0]
	for i := range msgs {
		m := &msgs[i]
		if known == nil || m.span != known {
			if m.Fenced() {
				continue
			}
			if known = m.span; known != nil && known.from != nil {
				known = nil
			}
		}
		if len(kept) == i {
			kept = msgs[:i+1]
			continue
		}
		kept = append(kept, *m)
	}
	clear(msgs[len(kept):])
	return kept
}

// With returns a message with another payload that stands for the same
// record: its verdict is m's verdict.
func With[In, Out any](m Message[In], payload Out) Message[Out] {
	return Message[Out]{Payload: payload, span: m.span, index: m.index}
}

// Join returns a message that stands for all members. Its verdict is given to
// those members that have none yet. Join does not keep the members slice.
func Join[In, Out any](payload Out, members []Message[In]) Message[Out] {
	s := &span{from: runsOf(members)}
	s.init(1, maybe)
	return Message[Out]{Payload: payload, span: s}
}

func runsOf[T any](msgs []Message[T]) (runs members) {
	runs = make(members, 0, len(msgs)/spanSize+2)
	for i := range msgs {
		m := &msgs[i]
		if m.span == nil {
			continue
		}
		if last := len(runs) - 1; last >= 0 && runs[last].span == m.span {
			runs[last].mask |= 1 << m.index
			continue
		}
		runs = append(runs, members{{m.span, 1 << m.index}}...)
	}
	return runs
}

// Split returns one message for each payload, all of which stand for m. When
// the last one has its verdict, m is returned if any of them was, else
// rejected with the first error if any was, else acked. Without payloads, m is
// acked at once.
func Split[In, Out any](m Message[In], payloads []Out) []Message[Out] {
	if len(payloads) == 0 {
		m.Ack()
		return nil
	}
	out := make([]Message[Out], len(payloads))
	if m.span == nil {
		for i := range out {
			out[i].Payload = payloads[i]
		}
		return out
	}
	from := &split{parent: slot{m.span, m.index}, children: len(payloads)}
	from.undecided.Store(int32(len(payloads)))
	for i := 0; i < len(payloads); i += spanSize {
		n := min(spanSize, len(payloads)-i)
		s := &span{from: from}
		s.init(n, m.span.mayBeFenced)
		for j := range n {
			out[i+j] = Message[Out]{Payload: payloads[i+j], span: s, index: uint8(j)}
		}
	}
	return out
}
