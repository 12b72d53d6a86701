package memkafka

import (
	"errors"
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

	// Guarded by tap.mu.
	timer      *time.Timer
	over       bool
	alone      bool        // the connection has ended
	beaten     time.Time   // when the timer was started last
	generation int32       // that of the group while it waits, if it is alone
	refusal    *kerr.Error // that is to be the answer, whatever kfake says
}

func (t *tap) waitsInJoin(w *wire, req *kmsg.JoinGroupRequest) *joinWait {
	return t.wait(&joinWait{
		wire: w, group: req.Group, member: req.MemberID, instance: req.InstanceID, join: req, session: sessionOf(req), generation: -1,
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
		wire: w, group: req.Group, member: req.MemberID, instance: req.InstanceID, session: m.watch.timeout, generation: req.Generation,
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
	for _, other := range t.waitsLocked(w.group, kfake.GroupMember{MemberID: w.member, InstanceID: w.instance}) {
		other.endLocked() // kfake answers only the last one
	}
	w.tap, w.beaten = t, time.Now()
	w.timer = time.AfterFunc(w.session/3, w.look)
	t.waits[w] = struct{}{}
	return w
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
	info, err := w.tap.broker.group(w.group)
	if err != nil {
		return 0 // closed
	}
	id := ""
	for _, m := range info.Members {
		if w.isOf(m) {
			id = m.MemberID
		}
	}
	w.tap.mu.Lock()
	if w.alone && w.generation < 0 {
		w.generation = info.Epoch
	}
	alone := w.alone
	ended := alone && !w.goesOn(info)
	due := ended || time.Since(w.beaten) >= w.session/3
	w.tap.mu.Unlock()

	switch {
	case alone && id == "":
		return 0
	case id != "" && due:
		if accepted := w.beat(id, info.Epoch); accepted && ended {
			if w.join != nil {
				w.tap.log.add("group %q: %s is in generation %d, and not there to be told", w.group, w.wire, info.Epoch)
			}
			return 0
		}
	}
	if alone {
		return aloneInterval
	}
	return w.session / 3
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
