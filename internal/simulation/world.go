package simulation

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo/memkafka"
)

const (
	group = "ingest"
	topic = "events"
	dead  = "events.dead"
	out   = "events.out"

	behind  = "actions" // the group that follows
	commits = "events.commits"
)

// hostControl is what can be done to a member's network.
type hostControl interface {
	Cut()
	BlackHole()
	Slow(d time.Duration)
	Heal()
}

// world is a plan as it happens.
type world struct {
	t       testing.TB
	plan    *plan
	broker  *memkafka.Broker
	members []*member
	auditor *auditor // nil: of a plan without
	history history
	calm    atomic.Bool    // the trouble is over
	healed  time.Time      // since when
	running sync.WaitGroup // lives, until nothing follows

	produced  map[string]bool // IDs that are to be processed
	partition int             // how many there are
	isDown    bool
	postponed []func() // until the broker is up
	faults    []*memkafka.Fault

	lastAsked []int // facts of the last commit request, not yet known to be accepted

	mu         sync.Mutex
	violations []string
}

func newWorld(t testing.TB, p *plan) *world {
	w := &world{t: t, plan: p, produced: make(map[string]bool), partition: p.partitions}
	w.broker = memkafka.New(t, memkafka.Topic(topic, p.partitions), memkafka.Topic(dead, 1), memkafka.Topic(out, 1), memkafka.Topic(commits, 1), memkafka.Brokers(2))
	for _, m := range p.members {
		w.members = append(w.members, &member{world: w, plan: m})
	}
	w.watchCommits()
	if p.audit != nil {
		w.auditor = newAuditor(w)
	}
	return w
}

func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// unexpected notes a run that ended with an error that nobody caused. left is
// when it was told to leave.
func (w *world) unexpected(l *life, left time.Time) {
	calm := w.calm.Load() && (left.IsZero() || left.After(w.healed))
	if !expectedEnd(l.err, calm) {
		w.violation("Run of %s ended with %v", l.name, l.err)
	}
}

// run plays the plan, lets everything converge, and ends it.
func (w *world) run() {
	began := time.Now()
	for _, s := range w.plan.steps {
		time.Sleep(s.at - time.Since(began))
		s.do(w)
	}
	time.Sleep(w.plan.length - time.Since(began))
	w.heal()
	w.converge()
	w.end()
	w.check()
	w.checkLeft()
}

// heal ends all trouble.
func (w *world) heal() {
	w.healed = time.Now().Add(time.Second)
	w.calm.Store(true)
	w.up()
	for _, f := range w.faults {
		f.Heal()
	}
	for _, m := range w.members {
		m.network(factHealed, func(h hostControl) { h.Heal() })
	}
	if w.auditor != nil {
		w.auditor.catchUp()
	}
	w.produce(20, "plain")
	w.members[0].join()
	last := w.members[len(w.members)-1] // one that follows, if there is any
	if last.plan.follows {
		last.join()
	}
	for _, m := range w.members {
		m.mu.Lock()
		m.wants = m.wants || m == w.members[0] || m == last && last.plan.follows
		m.mu.Unlock()
	}
}

// convergeTime is what everything gets to catch up once the trouble is over:
// sessions of members that are gone, drains of user code that does not listen,
// partitions that kgo learns of within five minutes (kgo.MetadataMaxAge),
// back-offs.
const convergeTime = 10 * time.Minute

func (w *world) converge() {
	for began := time.Now(); time.Since(began) < convergeTime; time.Sleep(500 * time.Millisecond) {
		if w.caughtUp() {
			return
		}
	}
	var state string
	for _, m := range w.members {
		m.mu.Lock()
		if m.life != nil && !isClosed(m.life.ended) && !m.life.crashed.Load() {
			state += fmt.Sprintf("\n%s: %+v", m.life.name, m.life.processor.Status())
		}
		m.mu.Unlock()
	}
	w.violation("I10: %v after the trouble was over, committed is %v of %v, by those who follow %v%s", convergeTime, w.broker.Committed(group, topic), w.broker.End(topic), w.broker.Committed(behind, topic), state)
}

func (w *world) caughtUp() bool {
	return w.hasCaughtUp(group) && (w.plan.follows == "" || w.hasCaughtUp(behind))
}

func (w *world) hasCaughtUp(group string) bool {
	committed := w.broker.Committed(group, topic)
	for p, end := range w.broker.End(topic) {
		if at, ok := committed[p]; !ok && end > 0 || at < end {
			return false
		}
	}
	return true
}

// end makes everybody leave.
func (w *world) end() {
	for _, m := range w.members {
		m.leave()
	}
	for _, m := range w.members {
		m.mu.Lock()
		l := m.life
		m.mu.Unlock()
		if l != nil {
			<-l.ended
		}
	}
	if w.auditor != nil {
		w.auditor.end()
	}
	w.running.Wait()
	// User code that does not listen goes on after its run has ended.
	for _, m := range w.members {
		if m.plan.pipeline.deaf {
			time.Sleep(m.plan.pipeline.takes + time.Second)
		}
	}
}

func (w *world) protocol() []kgo.Opt {
	switch w.plan.protocol {
	case "eager":
		return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}
	case "kip848":
		return []kgo.Opt{kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()}
	}
	return nil
}

// whenUp does something now, or when the broker is up again.
func (w *world) whenUp(f func()) {
	if w.isDown {
		w.postponed = append(w.postponed, f)
		return
	}
	f()
}

func (w *world) down() {
	if !w.isDown {
		w.isDown = true
		w.broker.Down()
	}
}

func (w *world) up() {
	if !w.isDown {
		return
	}
	w.isDown = false
	w.broker.Up()
	for _, f := range w.postponed {
		f()
	}
	w.postponed = nil
}

func (w *world) produce(n int, kind string) {
	w.whenUp(func() {
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("%d-%s", len(w.produced)+i, kind)
		}
		switch kind {
		case "transaction":
			w.broker.ProduceTransaction(topic, values...)
		case "aborted":
			w.broker.ProduceAborted(topic, values...)
			return
		case "gaps":
			w.broker.Skip(topic, int32(n%w.partition), int64(n))
			fallthrough
		default:
			w.broker.Produce(topic, values...)
		}
		for _, v := range values {
			w.produced[v] = true
		}
	})
}

func (w *world) grow(n int) {
	w.whenUp(func() {
		w.partition += n
		w.broker.AddPartitions(topic, w.partition)
	})
}

func (w *world) forceRebalance() {
	w.whenUp(func() {
		if w.broker.Members(group) > 0 {
			w.broker.ForceRebalance(group)
		}
	})
}

func (w *world) moveLeaders() {
	w.whenUp(func() {
		for p := range int32(w.partition) {
			w.broker.MoveLeader(topic, p, p%2)
		}
	})
}

func (w *world) kick(m int) {
	w.whenUp(func() {
		w.members[m].mu.Lock()
		l := w.members[m].life
		w.members[m].mu.Unlock()
		if l == nil || isClosed(l.ended) || l.crashed.Load() || l.member.plan.follows {
			return
		}
		id, _ := l.consumer.Client().GroupMetadata()
		for _, in := range w.broker.Group(group).Members {
			if id != "" && in.ID == id {
				w.broker.Kick(group, id)
				l.see(fact{kind: factEnded, excuse: "kicked"})
			}
		}
	})
}

// faults of requests.
var faults = []struct {
	what  string
	delay bool
	do    func(w *world, times int, slow time.Duration)
}{
	{"commits fail: rebalance in progress", false, failing(kmsg.OffsetCommit, kerr.RebalanceInProgress)},
	{"commits fail: coordinator loads", false, failing(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress)},
	{"commits fail: offset metadata too large", false, failing(kmsg.OffsetCommit, kerr.OffsetMetadataTooLarge)},
	{"commits take long", true, delaying(kmsg.OffsetCommit)},
	{"commits are not answered", true, func(w *world, times int, _ time.Duration) {
		w.faults = append(w.faults, w.broker.Swallow(kmsg.OffsetCommit, memkafka.OfGroup(group), memkafka.Times(times)))
	}},
	{"commits meet closed connections", true, func(w *world, times int, _ time.Duration) {
		w.faults = append(w.faults, w.broker.Disconnect(kmsg.OffsetCommit, memkafka.OfGroup(group), memkafka.Times(times)))
	}},
	{"fetches fail", false, failing(kmsg.Fetch, kerr.NotLeaderForPartition)},
	{"fetches fail, and kgo does not know why", false, failing(kmsg.Fetch, kerr.UnknownServerError)},
	{"fetches take long", true, delaying(kmsg.Fetch)},
	{"offset fetches fail", false, failing(kmsg.OffsetFetch, kerr.CoordinatorLoadInProgress)},
	{"dead letters fail", false, func(w *world, times int, _ time.Duration) {
		w.faults = append(w.faults, w.broker.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(dead), memkafka.Times(times)))
	}},
	{"dead letters take long", true, func(w *world, times int, slow time.Duration) {
		w.faults = append(w.faults, w.broker.Delay(kmsg.Produce, slow, memkafka.OnTopic(dead), memkafka.Times(times)))
	}},
}

func failing(key kmsg.Key, err *kerr.Error) func(*world, int, time.Duration) {
	return func(w *world, times int, _ time.Duration) {
		w.faults = append(w.faults, w.broker.Fail(key, err, memkafka.Times(times)))
	}
}

func delaying(key kmsg.Key) func(*world, int, time.Duration) {
	return func(w *world, times int, slow time.Duration) {
		w.faults = append(w.faults, w.broker.Delay(key, slow, memkafka.Times(times)))
	}
}

// watchCommits notes every commit that is asked for, and who has the partition
// by then, as the brokers see it. Controls run one after the other, and each
// commit is over before the next: then the group shows what became of the one
// before.
func (w *world) watchCommits() {
	cluster := w.broker.Cluster()
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.OffsetCommitRequest)
		owners := make(map[int32]string)
		switch req.Group {
		case audit:
			return nil, nil, false // the auditor tells of it
		case group:
			info := cluster.GroupInfo(group)
			w.judgeLastAsked(info)
			owners = ownersOf(info)
		}
		l := w.lifeOf(req.MemberID)
		for _, rt := range req.Topics {
			for _, rp := range rt.Partitions {
				if req.Group == group {
					f := fact{kind: factAsked, life: l, partition: rp.Partition, offset: rp.Offset}
					if owner := owners[rp.Partition]; owner != req.MemberID {
						f.owner = owner
					}
					w.lastAsked = append(w.lastAsked, w.history.add(f))
				}
				if l == nil {
					continue
				}
				l.see(fact{kind: factCommit, partition: rp.Partition, offset: rp.Offset})
			}
		}
		return nil, nil, false
	})
}

// ownersOf returns which member has been assigned which partition.
func ownersOf(info *kfake.GroupInfo) map[int32]string {
	owners := make(map[int32]string)
	if info != nil {
		for _, m := range info.Members {
			for _, p := range m.Assignment[topic] {
				owners[p] = m.MemberID
			}
		}
	}
	return owners
}

// judgeLastAsked finds out what the brokers accepted of the last request.
func (w *world) judgeLastAsked(info *kfake.GroupInfo) {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	for _, i := range w.lastAsked {
		f := &w.history.facts[i]
		if info != nil {
			at, ok := info.Commits[topic][f.partition]
			f.accepted = ok && at.Offset == f.offset && !at.At.Before(f.at)
		}
	}
	w.lastAsked = nil
}

func (w *world) lifeOf(memberID string) *life {
	for _, m := range w.members {
		m.mu.Lock()
		l := m.life
		m.mu.Unlock()
		if l == nil || l.consumer == nil || isClosed(l.ended) {
			continue
		}
		if id, _ := l.consumer.Client().GroupMetadata(); id == memberID {
			return l
		}
	}
	return nil
}
