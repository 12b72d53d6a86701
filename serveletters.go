package arroyo

import "time"

// judgeAgain is how often letters are looked at that wait for the verdicts of
// messages before theirs.
const judgeAgain = 20 * time.Millisecond

// serveLetters sends the letters of what was rejected, judged before if there
// are limits.
func (r *run) serveLetters(now time.Time) {
	if r.letters == nil {
		return
	}
	fresh := r.letters.takeFresh()
	if !r.letters.policy.limited() {
		r.letters.send(fresh)
	} else {
		for _, l := range fresh {
			p := l.slot.span.owner
			if r.progress[p.state.Epoch] != p {
				continue // over
			}
			p.judge.waiting[l.slot] = l
			r.judged[p] = true
		}
		for p := range r.judged {
			r.judgeLetters(p)
		}
	}
	if !now.Before(r.letterAt) {
		r.letterAt = now.Add(min(max(r.letters.policy.Timeout/4, judgeAgain), time.Second))
		r.letters.check(now)
	}
	if len(r.judged) > 0 {
		r.letterAt = minTime(r.letterAt, now.Add(judgeAgain))
	}
}

// judgeLetters sends the letters of an epoch that can be judged.
func (r *run) judgeLetters(p *progress) {
	p.judgeOn()
	r.letters.send(p.judge.passed)
	p.judge.passed = nil
	if err := p.judge.tripped; err != nil {
		r.fail(err)
	}
	if p.judge.tripped != nil || p.judge.over {
		p.judge.retractWaiting()
	}
	if len(p.judge.waiting) == 0 {
		delete(r.judged, p)
	}
}

// letterStatus also counts the letters that wait to be judged.
func (r *run) letterStatus() DeadLetterStatus {
	s := r.letters.status()
	for p := range r.judged {
		s.Pending += len(p.judge.waiting) + len(p.judge.passed)
	}
	return s
}

// noLetters reports whether nothing of an epoch whose lane has ended waits for
// the delivery of a letter.
func (r *run) noLetters(p *progress) bool {
	if p.judge != nil && len(p.judge.waiting) > 0 {
		r.judgeLetters(p)
		p.judge.retractWaiting() // what they wait for does not come
	}
	return r.letters == nil || p.undelivered.Load() == 0
}

// lettersFail ends the run because letters cannot be delivered.
func (r *run) lettersFail(l *letter, err error) {
	r.fail(r.letterError(l, err))
	r.letters.stop()
	for p := range r.judged {
		p.judge.retractWaiting()
	}
}

// lettersLeft is for a run whose last drain is past its deadline: it may be
// because of letters.
func (r *run) lettersLeft() {
	if r.letters == nil || r.failure != nil {
		return
	}
	if l, err := r.letters.unacked(time.Now().Add(-time.Second)); err != nil {
		r.failure = r.letterError(l, err)
	}
}

func (r *run) letterError(l *letter, err error) error {
	return &DeadLetterError{
		Topic:     r.letters.policy.Topic,
		Partition: l.state().Partition,
		Offset:    l.offset(),
		Err:       err,
	}
}
