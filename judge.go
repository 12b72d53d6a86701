package arroyo

import "math/bits"

// judge counts an epoch's verdicts in the order of its offsets, for the limits
// of a DeadLetterPolicy. A letter is sent once it was judged, so the limits
// trip at the same message whatever ran in parallel.
type judge struct {
	policy  *DeadLetterPolicy
	waiting map[slot]*letter // rejected and not judged yet

	span, bit int // how far it has come; span counts from the epoch's first

	seen, rejected, consecutive int64

	passed  []*letter // to be sent
	tripped error
	over    bool // it met a message that is left to the next owner
}

func newJudge(policy *DeadLetterPolicy) *judge {
	return &judge{policy: policy, waiting: make(map[slot]*letter)}
}

// judgeOn goes on to the first message that has no verdict.
func (p *progress) judgeOn() {
	for j := p.judge; j.tripped == nil; j.span, j.bit = j.span+1, 0 {
		i := j.span - p.dropped
		if i >= len(p.spans) || !j.judge(p.spans[i]) {
			return
		}
	}
}

// judged reports whether the judge has gone past a span, all of which is done.
// It may have been done only since the judge looked last.
func (p *progress) judged(span int) bool {
	if p.judge.span <= span {
		p.judgeOn()
	}
	return p.judge.span > span
}

// judge goes through a span; it reports false if not to its end.
func (j *judge) judge(s *span) bool {
	decided := s.decided.Load() // before the exceptions, which were set before it
	rejected, returned := s.rejected.Load(), s.returned.Load()
	if j.bit == 0 && decided == s.full && rejected|returned == 0 {
		if n := bits.OnesCount64(s.full &^ s.markers.Load()); n > 0 {
			j.seen += int64(n)
			j.consecutive = 0
		}
		return true
	}
	for ; j.bit < len(s.records); j.bit++ {
		bit := uint64(1) << j.bit
		switch {
		case decided&bit == 0:
			return false
		case returned&bit != 0:
			j.over = true
			return false
		case s.markers.Load()&bit != 0:
		case rejected&bit != 0:
			at := slot{s, uint8(j.bit)}
			next := j.waiting[at]
			if next == nil {
				return false // it comes
			}
			if j.tripped = j.reject(next); j.tripped != nil {
				return false
			}
			delete(j.waiting, at)
			j.passed = append(j.passed, next)
		default:
			j.seen++
			j.consecutive = 0
		}
	}
	return true
}

// reject counts a rejection. It returns an error if that passes a limit.
func (j *judge) reject(next *letter) error {
	j.seen++
	j.rejected++
	j.consecutive++
	e := &DeadLetterLimitError{
		Partition:   next.slot.span.owner.state.Partition,
		Offset:      next.slot.offset(),
		Rejected:    j.rejected,
		Seen:        j.seen,
		Consecutive: j.consecutive,
		Err:         next.err,
	}
	switch most := j.policy.MaxConsecutive; {
	case most > 0 && j.consecutive > int64(most):
		e.Limit, e.Max = "MaxConsecutive", float64(most)
		return e
	// The quotient, because it is rounded as the limit was: 29 of 100 do not
	// pass 0.29, but do pass 0.29*100.
	case j.policy.MaxRatio > 0 && j.seen >= ratioFrom && float64(j.rejected)/float64(j.seen) > j.policy.MaxRatio:
		e.Limit, e.Max = "MaxRatio", j.policy.MaxRatio
		return e
	}
	return nil
}

// retractWaiting leaves what was not judged to the next owner: a message before
// it was left there too.
func (j *judge) retractWaiting() {
	for at, next := range j.waiting {
		delete(j.waiting, at)
		next.slot.span.retract(next.slot.index)
	}
}
