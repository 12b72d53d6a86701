package arroyo

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// judgedProgress makes an epoch's progress whose verdicts are judged.
func judgedProgress(policy DeadLetterPolicy) *progress {
	p, run := testProgress()
	run.misused = func(error) {}
	p.judge = newJudge(&policy)
	return p
}

func recordsFrom(offset int64, n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Offset: offset + int64(i)}
	}
	return records
}

// The judge sees every record before the watermark lets go of it, also what is
// acked between two looks of the run loop, on another goroutine.
func TestJudgeSeesWhatIsLetGoOf(t *testing.T) {
	const rounds, n = 500, 3 * spanSize
	p := judgedProgress(DeadLetterPolicy{MaxConsecutive: 1})
	for i := range rounds {
		msgs := messagesOf(appendTo(p, recordsFrom(int64(i*n), n)))
		var acks sync.WaitGroup
		acks.Go(func() {
			for _, m := range msgs {
				m.Ack()
			}
		})
		for p.advance(); p.watermark.offset < int64((i+1)*n); p.advance() {
		}
		acks.Wait()
	}
	if p.judge.seen != rounds*n {
		t.Errorf("the judge has seen %d of %d", p.judge.seen, rounds*n)
	}
}

// The same, with the acks exactly between the judge's look and the watermark's.
func TestJudgeLooksAgain(t *testing.T) {
	p := judgedProgress(DeadLetterPolicy{MaxConsecutive: 1})
	msgs := messagesOf(appendTo(p, recordsFrom(0, 2*spanSize)))
	p.judgeOn()
	AckAll(msgs)
	if !p.judged(0) || !p.judged(1) || p.judge.seen != 2*spanSize {
		t.Errorf("the judge is at span %d, and has seen %d", p.judge.span, p.judge.seen)
	}
}

// What the judge says is what a count in the order of the offsets says, whatever
// the order of verdicts and whenever it looks.
func TestJudgeAgainstACount(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		policy := DeadLetterPolicy{MaxConsecutive: rng.IntN(4), MaxRatio: float64(rng.IntN(4)) / 8}
		p := judgedProgress(policy)
		p.run.rejected = func(s *span, index int, err error) {
			at := slot{s, uint8(index)}
			p.judge.waiting[at] = &letter{slot: at, err: err}
		}
		const n = 400
		msgs := messagesOf(appendTo(p, recordsFrom(0, n)))
		bad := make([]bool, n)
		share := rng.Float64() * 0.6
		for i := range bad {
			bad[i] = rng.Float64() < share
		}

		// The count.
		var want DeadLetterLimitError
		passes := 0
		for i := range n {
			want.Seen++
			if !bad[i] {
				want.Consecutive = 0
				continue
			}
			want.Rejected++
			want.Consecutive++
			if max := policy.MaxConsecutive; max > 0 && want.Consecutive > int64(max) {
				want.Limit = "MaxConsecutive"
			} else if policy.MaxRatio > 0 && want.Seen >= ratioFrom && float64(want.Rejected)/float64(want.Seen) > policy.MaxRatio {
				want.Limit = "MaxRatio"
			}
			if want.Limit != "" {
				want.Offset = int64(i)
				break
			}
			passes++
		}

		sent := 0
		look := func() {
			p.advance()
			for _, l := range p.judge.passed {
				l.slot.span.delivered(l.slot.index)
				sent++
			}
			p.judge.passed = nil
		}
		for _, i := range rng.Perm(n) {
			if bad[i] {
				msgs[i].Reject(errors.New("bad"))
			} else {
				msgs[i].Ack()
			}
			if rng.IntN(10) == 0 {
				look()
			}
		}
		look()
		look()
		var got DeadLetterLimitError
		if e := (*DeadLetterLimitError)(nil); errors.As(p.judge.tripped, &e) {
			got = DeadLetterLimitError{Offset: e.Offset, Limit: e.Limit, Rejected: e.Rejected, Seen: e.Seen, Consecutive: e.Consecutive}
		}
		if want.Limit == "" {
			want = DeadLetterLimitError{}
		}
		if got != want || sent != passes {
			t.Fatalf("seed %d, %+v: %d letters and\n%+v, want %d and\n%+v", seed, policy, sent, got, passes, want)
		}
		if mark := p.watermark.offset; want.Limit != "" && mark != want.Offset || want.Limit == "" && mark != n {
			t.Fatalf("seed %d: the watermark is %d; the limit is passed at %d (%q)", seed, mark, want.Offset, want.Limit)
		}
	}
}

// Markers that a lane finds behind messages which are judged already. It is for
// the race detector too.
func TestJudgeWhileALaneFindsMarkers(t *testing.T) {
	const rounds = 50
	p := judgedProgress(DeadLetterPolicy{MaxConsecutive: 1})
	for range rounds {
		spans := appendTo(p, recordsFrom(p.watermark.offset, spanSize))
		var lane sync.WaitGroup
		lane.Go(func() {
			for i := range spanSize {
				if i%8 == 7 {
					for range 100 { // lets the judge come in between
						runtime.Gosched()
					}
					spans[0].markers.Or(1 << i)
				}
				spans[0].ack(1 << i)
			}
		})
		for end := spans[0].next.offset; p.watermark.offset < end; p.advance() {
			runtime.Gosched()
		}
		lane.Wait()
	}
	if want := int64(rounds * spanSize * 7 / 8); p.judge.seen != want {
		t.Errorf("the judge has seen %d messages, want %d", p.judge.seen, want)
	}
}
