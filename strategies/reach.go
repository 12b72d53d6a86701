package strategies

import (
	"maps"

	"github.com/arroyo-go/arroyo"
)

// reach is how far a step has come with an epoch: the highest offset that it has
// begun. What is in front of that is finished in a drain, also if it was not
// begun, because the next owner would do again what is behind it.
type reach struct {
	begun int64
	of    sample
}

// sample is some message of an epoch, without its payload. It tells whether the
// epoch is over.
type sample = arroyo.Message[struct{}]

// reaches are those of all epochs.
type reaches struct{ byEpoch map[arroyo.Epoch]*reach }

func (rs *reaches) of(e arroyo.Epoch, of sample) *reach {
	r := rs.byEpoch[e]
	if r == nil {
		if rs.byEpoch == nil {
			rs.byEpoch = make(map[arroyo.Epoch]*reach)
		}
		maps.DeleteFunc(rs.byEpoch, func(_ arroyo.Epoch, r *reach) bool { return r.of.Fenced() })
		r = &reach{begun: -1, of: of}
		rs.byEpoch[e] = r
	}
	return r
}

// begin notes that a message is begun.
func begin[T any](rs *reaches, m arroyo.Message[T]) {
	for e := range m.Epochs() {
		_, last, _ := m.Offsets(e)
		r := rs.of(e, arroyo.With(m, struct{}{}))
		r.begun = max(r.begun, last)
	}
}

// isBehindAll reports whether no message behind this one was begun.
func isBehindAll[T any](rs *reaches, m arroyo.Message[T]) bool {
	for e := range m.Epochs() {
		if first, _, _ := m.Offsets(e); first <= rs.of(e, arroyo.With(m, struct{}{})).begun {
			return false
		}
	}
	return true
}
