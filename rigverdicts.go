package arroyo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Verdict is the verdict on a record, as a Rig saw it.
type Verdict struct {
	Epoch  Epoch
	Record *kgo.Record
	Kind   VerdictKind
	Err    error // why it was rejected
}

// VerdictKind is which verdict it was.
type VerdictKind string

// The verdicts.
const (
	Acked    VerdictKind = "acked"
	Rejected VerdictKind = "rejected"
	Returned VerdictKind = "returned"
)

// Verdicts returns the verdicts on records that were fed since Watch, in the
// order in which they were given. It may be called from any goroutine.
func (r *Rig) Verdicts() []Verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.verdicts)
}

// settled notes the verdict on a span's only record.
func (r *Rig) settled(s *span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := Verdict{Epoch: s.owner.state.Epoch, Record: s.records[0], Kind: Acked}
	if err, ok := r.reasons[s]; ok {
		v.Kind, v.Err = Rejected, err
		delete(r.reasons, s)
	} else if s.returned.Load() != 0 {
		v.Kind = Returned
	}
	r.verdicts = append(r.verdicts, v)
}

// rejected delivers the record's dead letter, so to speak.
func (r *Rig) rejected(s *span, index int, err error) {
	if r.watched {
		r.mu.Lock()
		r.reasons[s] = err
		r.mu.Unlock()
	}
	s.owner.undelivered.Add(1)
	s.delivered(uint8(index))
}

// HandedOn tells the rig that a message came out of the pipeline under test, or
// out of a part of it. It returns an error if a record that the message stands
// for came out before, other than for another child of the same Split, or if
// the message was settled before. It may be called from any goroutine.
func HandedOn[T any](r *Rig, m Message[T]) error {
	if m.span == nil {
		return nil
	}
	if m.Settled() {
		return fmt.Errorf("%s is handed on although it is settled", describe(m.Record()))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.claim(slot{m.span, m.index}, nil)
}

var errHandedOnTwice = errors.New("handed on twice")

// claim notes to whom a slot belongs: to the message that was handed on (nil),
// or to a Split, whose children come one by one.
func (r *Rig) claim(s slot, by *split) error {
	if owner, ok := r.claimed[s]; ok {
		if by != nil && owner == any(by) {
			return nil
		}
		var record *kgo.Record
		s.each(func(root slot) bool { record = root.span.records[root.index]; return false })
		return fmt.Errorf("%s is %w", describe(record), errHandedOnTwice)
	}
	r.claimed[s] = by
	switch from := s.span.from.(type) {
	case *split:
		return r.claim(from.parent, from)
	case members:
		for s := range from.slots {
			if err := r.claim(s, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func describe(r *kgo.Record) string {
	if r == nil {
		return "a message without a record"
	}
	return fmt.Sprintf("%s/%d offset %d", r.Topic, r.Partition, r.Offset)
}
