package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// plan is what a seed draws before anything happens.
type plan struct {
	seed       uint64
	protocol   string // cooperative, eager, kip848
	partitions int
	latest     bool       // the group starts at the end
	limits     bool       // of dead letters
	recycle    bool       // records
	follows    string     // how a second group follows the first: log, offsets, or not at all
	audit      *auditPlan // a third group, which it follows as well; nil: none
	troubled   bool       // whether anything fails that is not user code
	calm       bool       // nothing happens that may leave work undone
	length     time.Duration
	members    []memberPlan
	steps      []step // by time
}

// memberPlan is what a member is like.
type memberPlan struct {
	name        string
	partitioned bool
	static      bool
	follows     bool // it is of the second group
	maxInFlight int
	tight       bool // it fetches as little at once as it can
	every       int  // CommitEvery
	interval    time.Duration
	drain       time.Duration
	pipeline    pipelinePlan
}

// step is something that happens.
type step struct {
	at   time.Duration
	what string
	do   func(w *world)
}

func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %d partitions, latest %t, limits %t, recycle %t, follows %q, %v\n", p.seed, p.protocol, p.partitions, p.latest, p.limits, p.recycle, p.follows, p.length)
	for _, m := range p.members {
		fmt.Fprintf(&b, "  %s: partitioned %t, static %t, in flight %d, commits every %v or %d, drains within %v: %s\n",
			m.name, m.partitioned, m.static, m.maxInFlight, m.interval, m.every, m.drain, m.pipeline)
	}
	b.WriteString(p.audit.String())
	for _, s := range p.steps {
		fmt.Fprintf(&b, "  %8v %s\n", s.at.Round(time.Millisecond), s.what)
	}
	return b.String()
}

// pick returns one of these.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// between returns a duration in a range.
func between(rng *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(rng.Int64N(int64(to-from)+1))
}

// longInterval is a CommitInterval that wakes nobody in time.
const longInterval = 90 * time.Second

// drawInterval returns a CommitInterval: mostly a short one, and now and then a
// long one.
func drawInterval(rng *rand.Rand) time.Duration {
	if rng.IntN(6) == 0 {
		return longInterval
	}
	return between(rng, 50*time.Millisecond, 2*time.Second)
}

func draw(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 0x5eed))
	p := &plan{
		seed:       seed,
		protocol:   pick(rng, "cooperative", "eager", "kip848"),
		partitions: pick(rng, 1, 2, 3, 4, 6),
		latest:     rng.IntN(8) == 0,
		limits:     rng.IntN(6) == 0,
		recycle:    seed%3 == 0,
		length:     between(rng, 20*time.Second, 70*time.Second),
	}
	n := pick(rng, 1, 2, 2, 3, 3, 4, 6)
	calm := rng.IntN(5) == 0
	p.calm = calm
	static := rng.IntN(4) == 0
	for i := range n {
		p.members = append(p.members, memberPlan{
			name:        fmt.Sprintf("m%d", i+1),
			partitioned: rng.IntN(2) == 0,
			static:      static && rng.IntN(2) == 0,
			maxInFlight: pick(rng, 5, 50, 200, 50_000),
			every:       pick(rng, 0, 0, 0, 1, 10, 64),
			interval:    drawInterval(rng),
			drain:       between(rng, 3*time.Second, 20*time.Second),
			pipeline:    drawPipeline(rng, calm),
		})
	}
	if !p.latest && rng.IntN(4) == 0 {
		p.follows = pick(rng, "log", "offsets")
		for i := range pick(rng, 1, 2) {
			p.members = append(p.members, memberPlan{
				name:        fmt.Sprintf("f%d", i+1),
				follows:     true,
				partitioned: rng.IntN(2) == 0,
				maxInFlight: pick(rng, 50, 50_000),
				interval:    drawInterval(rng),
				drain:       between(rng, 3*time.Second, 20*time.Second),
				pipeline:    pipelinePlan{end: "follow", pace: pick(rng, 0, between(rng, 0, 5*time.Millisecond))},
			})
		}
	}
	p.drawSteps(rng, calm)
	if !calm && rng.IntN(20) == 0 {
		p.drawZombie(rng)
	}
	if rng.IntN(25) == 0 {
		p.drawTight(rng)
	}
	return p
}

// drawTight gives all members room for a few records only, and work that is done
// elsewhere: only what is settled can tell that there is room again.
func (p *plan) drawTight(rng *rand.Rand) {
	for i := range p.members {
		m := &p.members[i]
		if m.follows {
			continue
		}
		m.partitioned, m.maxInFlight, m.every, m.interval = false, 5, 0, longInterval
		m.pipeline.end = "Produce"
		m.tight = true
	}
	p.steps = append(p.steps, step{p.length, "produce 5 records, plain, 60 times", func(w *world) {
		for range 60 {
			w.produce(5, "plain")
		}
	}})
}

// drawZombie cuts a member off for longer than its session, with work left that
// takes longer still.
func (p *plan) drawZombie(rng *rand.Rand) {
	const lasts = session + 25*time.Second
	m := &p.members[0]
	m.pipeline.pace = between(rng, 500*time.Millisecond, 2*time.Second)
	m.maxInFlight = max(m.maxInFlight, 200)
	at := between(rng, time.Second, p.length/2)
	p.troubled = true
	p.length = max(p.length, at+lasts+time.Second)
	add := func(at time.Duration, what string, do func(w *world)) { p.steps = append(p.steps, step{at, what, do}) }
	add(at-time.Second, "produce 150 records, plain", func(w *world) { w.produce(150, "plain") })
	add(at, m.name+"'s network is cut", func(w *world) { w.members[0].network(factCut, func(h hostControl) { h.Cut() }) })
	add(at+lasts, "heals: "+m.name+"'s network is cut", func(w *world) { w.members[0].network(factHealed, func(h hostControl) { h.Heal() }) })
	p.sortSteps()
}

func (p *plan) sortSteps() {
	slices.SortStableFunc(p.steps, func(a, b step) int { return int(a.at - b.at) })
}

func (p *plan) drawSteps(rng *rand.Rand, calm bool) {
	at := func() time.Duration { return between(rng, 0, p.length) }
	add := func(at time.Duration, what string, do func(w *world)) {
		p.steps = append(p.steps, step{at, what, do})
	}
	for i := range pick(rng, 2, 5, 10) {
		n := pick(rng, 1, 10, 40, 150)
		when := at()
		if i == 0 {
			when = 0
		}
		kind := pick(rng, "plain", "plain", "plain", "transaction", "aborted", "gaps")
		add(when, fmt.Sprintf("produce %d records, %s", n, kind), func(w *world) { w.produce(n, kind) })
	}
	// Members come at the start or later, and most of them go again.
	for i := range p.members {
		m := i
		when := time.Duration(0)
		if i > 0 && rng.IntN(2) == 0 {
			when = at()
		}
		add(when, p.members[i].name+" joins", func(w *world) { w.members[m].join() })
		for range pick(rng, 0, 1, 1, 2) {
			leave := at()
			if rng.IntN(2) == 0 || calm {
				add(leave, p.members[i].name+" leaves", func(w *world) { w.members[m].leave() })
			} else {
				add(leave, p.members[i].name+" crashes", func(w *world) { w.members[m].crash() })
			}
			if rng.IntN(3) > 0 {
				add(leave+between(rng, 0, 10*time.Second), p.members[i].name+" joins", func(w *world) { w.members[m].join() })
			}
		}
	}
	if rng.IntN(4) == 0 {
		add(at(), "the topic gets two more partitions", func(w *world) { w.grow(2) })
	}
	for range pick(rng, 0, 1, 2) {
		add(at(), "a rebalance is forced", func(w *world) { w.forceRebalance() })
	}
	if !calm {
		for range pick(rng, 0, 1, 2, 4) {
			p.drawTrouble(rng, at())
		}
	}
	p.drawAudit()
	p.sortSteps()
}

// drawTrouble adds a fault, and its end.
func (p *plan) drawTrouble(rng *rand.Rand, from time.Duration) {
	p.troubled = true
	m := rng.IntN(len(p.members))
	name := p.members[m].name
	lasts := pick(rng, between(rng, 100*time.Millisecond, 3*time.Second), between(rng, 3*time.Second, 20*time.Second), between(rng, 40*time.Second, 70*time.Second))
	slow := between(rng, time.Millisecond, 2*time.Second)
	times := pick(rng, 1, 2, 10)
	host := func(kind factKind, f func(h hostControl)) func(w *world) {
		return func(w *world) { w.members[m].network(kind, f) }
	}
	heal := host(factHealed, func(h hostControl) { h.Heal() })
	type trouble struct {
		what     string
		do, undo func(w *world)
	}
	kinds := []trouble{
		{name + "'s network is cut", host(factCut, func(h hostControl) { h.Cut() }), heal},
		{name + "'s network lets nothing through", host(factCut, func(h hostControl) { h.BlackHole() }), heal},
		{fmt.Sprintf("%s's network is slow by %v", name, slow), host(factHealed, func(h hostControl) { h.Slow(slow) }), heal},
		{"the broker goes down", func(w *world) { w.down() }, func(w *world) { w.up() }},
		{"the coordinator moves", func(w *world) { w.broker.MoveCoordinator(group) }, nil},
		{"leaders move", func(w *world) { w.moveLeaders() }, nil},
		{name + " is kicked", func(w *world) { w.kick(m) }, nil},
	}
	for _, f := range faults {
		kinds = append(kinds, trouble{fmt.Sprintf("%s, %d times", f.what, times), func(w *world) { f.do(w, times, slow) }, nil})
	}
	t := pick(rng, kinds...)
	p.steps = append(p.steps, step{from, t.what, t.do})
	if t.undo != nil {
		p.steps = append(p.steps, step{from + lasts, "heals: " + t.what, t.undo})
	}
}
