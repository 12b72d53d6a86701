package memkafka

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// aloneInterval is how often it is looked whether a wait has ended that nobody gets the answer of.
const aloneInterval = 100 * time.Millisecond

// joinWait is the wait of a member of a classic group for the others: in a join until all have joined, in a sync until the
// leader has said who has what.
//
// Kafka expires no member that waits, whether its client is still there or not, and begins its session anew when the wait
// ends. kfake's timer goes on meanwhile, though kgo sends no heartbeats then: with a session timeout of 45 s and a
// rebalance timeout of 60 s a member that was prompt would be expired because another one is slow. And it begins no
// session for a member whose connection has ended by then: a new one, which had none before, would never be expired. A
// heartbeat in the member's name, from the broker's own client, starts the timer anew and does nothing else.
type joinWait struct {
	tap      *tap
	wire     *wire
	group    string
	member   string // "" of a static one that is new: it is told its ID by the answer
	instance *string
	join     *kmsg.JoinGroupRequest // nil in a sync
	session  time.Duration

	generation int32 // that of the group meanwhile

	// Guarded by tap.mu.
	timer   *time.Timer
	over    bool
	alone   bool        // the connection has ended
	since   time.Time   // when it began, or another one of the member that this one goes on with
	beaten  time.Time   // when the session began last
	refusal *kerr.Error // that is to be the answer, whatever kfake says
}

func (t *tap) waitsInJoin(w *wire, req *kmsg.JoinGroupRequest) *joinWait {
	info, err := t.broker.group(req.Group)
	if err != nil {
		return nil // closed
	}
	return t.wait(&joinWait{
		wire: w, group: req.Group, member: req.MemberID, instance: req.InstanceID, generation: info.Epoch,
		join: req, session: sessionOf(req),
	})
}

func (t *tap) waitsInSync(w *wire, req *kmsg.SyncGroupRequest) *joinWait {
	t.mu.Lock()
	m := t.members[req.MemberID]
	t.mu.Unlock()
	if m == nil {
		return nil
	}
	return t.wait(&joinWait{
		wire: w, group: req.Group, member: req.MemberID, instance: req.InstanceID, generation: req.Generation,
		session: m.watch.timeout,
	})
}

func sessionOf(req *kmsg.JoinGroupRequest) time.Duration {
	return time.Duration(req.SessionTimeoutMillis) * time.Millisecond
}

func (t *tap) wait(w *joinWait) *joinWait {
	if w.session <= 0 {
		return nil // kfake will refuse that
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w.tap, w.since, w.beaten = t, time.Now(), time.Now()
	if m := t.members[w.member]; m != nil {
		w.beaten = m.watch.last
	}
	for _, other := range t.waitsLocked(w.group, kfake.GroupMember{MemberID: w.member, InstanceID: w.instance}) {
		if w.join != nil && other.join != nil && other.generation == w.generation {
			w.since = other.since
		}
		if other.alone {
			other.endLocked()
		}
	}
	w.timer = time.AfterFunc(w.untilBeat(), w.look)
	t.waits[w] = struct{}{}
	return w
}

// untilBeat returns when the next heartbeat is due.
func (w *joinWait) untilBeat() time.Duration {
	return max(time.Until(w.beaten.Add(w.session/3)), time.Millisecond)
}

// waitsLocked returns the waits of a member, or of the static one whose place it has. The caller holds tap.mu.
func (t *tap) waitsLocked(group string, m kfake.GroupMember) []*joinWait {
	var found []*joinWait
	for w := range t.waits {
		same := w.instance != nil && m.InstanceID != nil && *w.instance == *m.InstanceID
		if w.group == group && (same || w.isOf(m)) {
			found = append(found, w)
		}
	}
	return found
}

func (w *joinWait) isOf(m kfake.GroupMember) bool {
	switch {
	case w.member != "":
		return w.member == m.MemberID // not another one that has its instance ID now
	case w.instance != nil && m.InstanceID != nil:
		return *w.instance == *m.InstanceID
	}
	return w.wire.RemoteAddr().String() == m.ClientHost
}

// end is called when the answer is there. It returns what is to be the answer instead, if anything.
func (w *joinWait) end() *kerr.Error {
	if w == nil {
		return nil
	}
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	w.endLocked()
	return w.refusal
}

func (w *joinWait) endLocked() {
	w.over = true
	w.timer.Stop()
	delete(w.tap.waits, w)
}

// leave is called when the connection ends before the answer is there.
func (w *joinWait) leave() {
	if w != nil {
		w.tap.mu.Lock()
		defer w.tap.mu.Unlock()
		if !w.over {
			w.alone = true
			w.timer.Reset(aloneInterval) // kfake may not have seen the request yet
		}
	}
}

// look is called by the timer.
func (w *joinWait) look() {
	next := w.next()
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	switch {
	case w.over:
	case next == 0:
		w.endLocked()
	default:
		w.timer.Reset(next)
	}
}

// next keeps the member alive, and returns when to look again: 0 for never.
func (w *joinWait) next() time.Duration {
	t := w.tap
	info, err := t.broker.group(w.group)
	if err != nil {
		return 0 // closed
	}
	id := ""
	for _, m := range info.Members {
		if w.isOf(m) {
			id = m.MemberID
		}
	}
	t.mu.Lock()
	alone := w.alone
	ended := alone && !w.goesOn(info)
	due := ended || time.Since(w.beaten) >= w.session/3
	t.mu.Unlock()

	if alone && id == "" {
		return 0
	}
	accepted := due && id != "" && w.beat(id, info.Epoch)
	if ended && accepted {
		if w.join != nil {
			t.log.add("group %q: %s is in generation %d, and not there to be told", w.group, w.wire, info.Epoch)
		}
		return 0
	}
	next := w.untilOverdue(info)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case alone:
		return min(next, aloneInterval)
	case due && !accepted: // it is not in yet, or no longer
		return min(next, w.session/10)
	}
	return min(next, w.untilBeat())
}

// goesOn tells whether the member still waits, of which kfake says nothing.
func (w *joinWait) goesOn(info *kfake.GroupInfo) bool {
	state := "CompletingRebalance"
	if w.join != nil {
		state = "PreparingRebalance"
	}
	return info.State == state && info.Epoch == w.generation
}

func (w *joinWait) beat(id string, generation int32) (accepted bool) {
	t := w.tap
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = w.group, id, generation
	if _, err := askCoordinator[*kmsg.HeartbeatResponse](t.broker, w.group, req); err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
		return false // the wait is over, or the member gone
	}
	t.mu.Lock()
	w.beaten = time.Now()
	unknown := t.members[id] == nil
	t.mu.Unlock()
	if unknown && w.join != nil && w.alone {
		t.noteJoin(w.wire, w.join, id) // nobody got the answer that would have told so
	}
	t.alive(id, true)
	return true
}

// untilOverdue returns when a join that the wait is part of is overdue, and ends it if it is now: the members are expired
// that have not joined again within the rebalance timeout, which is the longest that a member has. kfake begins that time
// anew with each join, also with one that is sent again because it took so long, and may go on so for ever; also when
// nobody is late, but it has counted wrongly (see removes).
func (w *joinWait) untilOverdue(info *kfake.GroupInfo) time.Duration {
	t := w.tap
	if w.join == nil || !w.goesOn(info) {
		return w.session
	}
	timeout := time.Duration(0)
	longest := func(req *kmsg.JoinGroupRequest) {
		timeout = max(timeout, time.Duration(req.RebalanceTimeoutMillis)*time.Millisecond)
	}
	t.mu.Lock()
	began := w.since
	for other := range t.waits {
		if other.group == w.group && other.join != nil && other.generation == w.generation {
			longest(other.join)
			if other.since.Before(began) {
				began = other.since
			}
		}
	}
	var late []kfake.GroupMember
	for _, m := range info.Members {
		if notes := t.members[m.MemberID]; notes != nil && notes.join != nil {
			longest(notes.join)
		}
		waits := t.waitsLocked(w.group, m)
		if !slices.ContainsFunc(waits, func(other *joinWait) bool { return other.join != nil && other.generation == w.generation }) {
			late = append(late, m)
		}
	}
	t.mu.Unlock()

	// kfake's own time is up a moment before, if it did not begin it anew.
	if left := time.Until(began.Add(timeout + aloneInterval)); left > 0 {
		return left
	}
	if len(late) == 0 {
		t.broker.endJoin(w.group)
	}
	for _, m := range late {
		if t.broker.removeClassic(w.group, m) == nil {
			t.log.add("group %q: %s is expired: it did not join again within %v", w.group, t.describe(m.MemberID), timeout)
			t.drop(m.MemberID)
		}
	}
	return w.session
}
