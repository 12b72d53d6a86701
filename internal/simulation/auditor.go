package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// audit is a second group that is followed. It has no members that are
// simulated: an auditor commits for it.
const audit = "audit"

// auditPlan is what that group is like. It does not exist until it starts.
type auditPlan struct {
	every time.Duration // it commits
	most  int64         // offsets of each partition at a time
}

func (p *auditPlan) String() string {
	if p == nil {
		return ""
	}
	return fmt.Sprintf("  %s: commits up to %d more of each partition every %v\n", audit, p.most, p.every)
}

// drawAudit adds the second group, and what happens to it: it starts, stops,
// starts again, and an administrator sets it back. It draws from a source of its
// own, so that the plans without it are what they were.
func (p *plan) drawAudit() {
	rng := rand.New(rand.NewPCG(p.seed, 0xa0d17))
	if p.follows == "" || rng.IntN(3) == 0 {
		return
	}
	p.audit = &auditPlan{every: between(rng, 50*time.Millisecond, 2*time.Second), most: pick[int64](rng, 1, 5, 20, 1000)}
	at := func() time.Duration { return between(rng, 0, p.length) }
	add := func(at time.Duration, what string, do func(a *auditor)) {
		p.steps = append(p.steps, step{at, audit + " " + what, func(w *world) { do(w.auditor) }})
	}
	add(pick(rng, 0, at()), "starts", func(a *auditor) { a.run(true) })
	for range pick(rng, 0, 1, 2) {
		stops := at()
		add(stops, "stops", func(a *auditor) { a.run(false) })
		add(stops+between(rng, 0, 20*time.Second), "starts again", func(a *auditor) { a.run(true) })
	}
	for range pick(rng, 0, 1, 3) {
		to := pick(rng, 0, rng.Float64())
		add(at(), fmt.Sprintf("is set back to %.2f of where it is", to), func(a *auditor) { a.setBack(to) })
	}
}

// auditor commits for the second group.
type auditor struct {
	w      *world
	plan   *auditPlan
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	runs  bool
	reset bool // at was set back
	hurry bool // all that there is, at once
	at    map[int32]int64
	told  map[int32]int64 // of at: what was committed last
}

func newAuditor(w *world) *auditor {
	client, err := kgo.NewClient(append(w.broker.Host().ClientOptions(), kgo.ClientID(audit))...)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	a := &auditor{w: w, plan: w.plan.audit, client: client, stop: stop, ended: make(chan struct{}), at: make(map[int32]int64), told: make(map[int32]int64)}
	go a.work(ctx)
	return a
}

func (a *auditor) work(ctx context.Context) {
	defer close(a.ended)
	for ctx.Err() == nil {
		a.mu.Lock()
		runs, reset := a.runs, a.reset
		a.reset = false
		for p, end := range a.w.broker.End(topic) {
			switch {
			case a.hurry:
				a.at[p] = end
			case a.runs:
				a.at[p] = min(end, a.at[p]+a.plan.most)
			}
		}
		a.mu.Unlock()
		if runs || reset {
			a.commit(ctx, !runs && a.w.plan.follows == "log")
		}
		select {
		case <-time.After(a.plan.every):
		case <-ctx.Done():
		}
	}
}

// commit commits what moved, as the group does, and writes the commit log; or,
// silently, as an administrator does, of which the log does not tell.
func (a *auditor) commit(ctx context.Context, silently bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	type move struct{ from, to int64 }
	moves := make(map[int32]move)
	a.mu.Lock()
	for p, at := range a.at {
		if from, ok := a.told[p]; !ok || from != at {
			moves[p] = move{from, at}
		}
	}
	a.mu.Unlock()
	if len(moves) == 0 {
		return
	}
	// What is higher counts from when it is sent, what is lower from when it
	// was taken.
	see := func(p int32, m move) {
		a.w.history.add(fact{kind: factAudit, partition: p, offset: m.to, id: audit})
	}
	var offsets kadm.Offsets
	var entries []*kgo.Record
	for p, m := range moves {
		if m.to >= m.from && !silently {
			see(p, m)
		}
		offsets.AddOffset(topic, p, m.to, -1)
		e := arroyo.CommitLogEntry{Group: audit, Partition: arroyo.Partition{Topic: topic, Number: p}, Offset: m.to}
		entries = append(entries, e.Record(commits))
	}
	if err := kadm.NewClient(a.client).CommitAllOffsets(ctx, audit, offsets); err != nil || silently {
		return // it is told later
	}
	if a.w.plan.follows == "log" {
		if err := a.client.ProduceSync(ctx, entries...).FirstErr(); err != nil {
			return
		}
	}
	for p, m := range moves {
		if m.to < m.from {
			see(p, m)
		}
	}
	a.mu.Lock()
	for p, m := range moves {
		a.told[p] = m.to
	}
	a.mu.Unlock()
}

func (a *auditor) run(runs bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs = runs
}

// setBack is what an administrator does. The commit log tells of it only when
// the group commits again.
func (a *auditor) setBack(to float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p, at := range a.at {
		a.at[p] = int64(to * float64(at))
	}
	a.reset = true
}

// catchUp makes the group commit everything from now on.
func (a *auditor) catchUp() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs, a.hurry = true, true
}

func (a *auditor) end() {
	a.stop()
	<-a.ended
	a.client.Close()
}
