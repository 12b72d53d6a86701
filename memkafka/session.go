package memkafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerSession is the session timeout of KIP-848 groups, on which the brokers decide.
const consumerSession = 45 * time.Second

// sessionWatch notes in the log when a member is expired, which nobody is told at the time.
type sessionWatch struct {
	timeout time.Duration
	last    time.Time // guarded by tap.mu
	timer   *time.Timer
}

// note begins to watch a member that has joined, or joined again.
func (t *tap) note(id string, m *memberNotes, timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.members[id]; old != nil {
		old.watch.timer.Stop()
		old.revocation.stop()
	}
	m.watch = &sessionWatch{timeout: timeout, last: time.Now()}
	m.watch.timer = time.AfterFunc(timeout+time.Millisecond, func() { t.look(id, m) })
	t.members[id] = m
}

// alive notes a sign of life that the broker has accepted.
func (t *tap) alive(id string, accepted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[id]; m != nil && accepted {
		m.watch.last = time.Now()
	}
}

// goesAway notes that a member has left a KIP-848 group to come back, if it is a static one. As in Kafka, its session goes
// on, and it is expired at the end of it if it has not come back. kfake would keep its partitions for it without an end.
func (t *tap) goesAway(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	if m == nil || !m.static {
		return false
	}
	m.away = true
	m.revocation.stop()
	return true
}

// drop forgets a member, and tells whether it was there.
func (t *tap) drop(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	if m != nil {
		m.watch.timer.Stop()
		m.revocation.stop()
		delete(t.members, id)
	}
	return m != nil
}

// lookAtGroup looks at the members of a group that may be expired, before what follows from that is in the log.
func (t *tap) lookAtGroup(group string) {
	late := make(map[string]*memberNotes)
	t.mu.Lock()
	for id, m := range t.members {
		if m.group == group && time.Since(m.watch.last) >= m.watch.timeout {
			late[id] = m
		}
	}
	t.mu.Unlock()
	for id, m := range late {
		t.look(id, m)
	}
}

// look looks whether a member is still there. It is called when the session would have ended if nothing had been heard
// of it: so once in a session for all heartbeats, and not for each.
func (t *tap) look(id string, m *memberNotes) {
	t.mu.Lock()
	if t.members[id] != m {
		t.mu.Unlock()
		return
	}
	silent := time.Since(m.watch.last)
	if silent < m.watch.timeout {
		m.watch.timer.Reset(m.watch.timeout - silent + time.Millisecond)
		t.mu.Unlock()
		return
	}
	away := m.away
	t.mu.Unlock()

	if away {
		_ = t.broker.remove(m.group, id, true) // an error means that it is back, with another ID
	}
	info, err := t.broker.group(m.group)
	if err != nil {
		return // closed
	}
	for _, member := range info.Members {
		if member.MemberID == id { // it waits in a join, or is about to be expired
			t.mu.Lock()
			if t.members[id] == m {
				m.watch.timer.Reset(m.watch.timeout/10 + time.Millisecond)
			}
			t.mu.Unlock()
			return
		}
	}
	if who := t.describe(id); t.drop(id) {
		t.log.add("group %q: %s is expired: nothing was heard of it for %v", m.group, who, m.watch.timeout)
	}
}

// stopWatching ends all timers.
func (t *tap) stopWatching() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, m := range t.members {
		m.watch.timer.Stop()
		m.revocation.stop()
		delete(t.members, id)
	}
}

// joinWait keeps a member alive that waits for the others in a join or a sync. Kafka does not expire such a member, and
// kgo sends no heartbeats for it. kfake's timer goes on: with a session timeout of 45 s and a rebalance timeout of 60 s
// a member that was prompt would be expired because another one is slow. A heartbeat in its name now and then, from the
// broker's own client, starts the timer anew and does nothing else.
type joinWait struct {
	tap           *tap
	group, member string
	instance      *string
	every         time.Duration
	timer         *time.Timer
}

func (t *tap) waitsInJoin(group, member string, instance *string, sessionMillis int32) *joinWait {
	if member == "" || sessionMillis <= 0 {
		return nil // a new member has no timer before its first join has ended
	}
	return t.wait(group, member, instance, time.Duration(sessionMillis)*time.Millisecond/3)
}

func (t *tap) waitsInSync(group, member string, instance *string) *joinWait {
	t.mu.Lock()
	m := t.members[member]
	t.mu.Unlock()
	if m == nil {
		return nil
	}
	return t.wait(group, member, instance, m.watch.timeout/3)
}

func (t *tap) wait(group, member string, instance *string, every time.Duration) *joinWait {
	w := &joinWait{tap: t, group: group, member: member, instance: instance, every: every}
	t.mu.Lock()
	defer t.mu.Unlock()
	w.timer = time.AfterFunc(every, w.beat)
	return w
}

// end is called when the answer is there, or nobody can get it any more.
func (w *joinWait) end() {
	if w != nil {
		w.tap.mu.Lock()
		defer w.tap.mu.Unlock()
		w.timer.Stop()
		w.every = 0
	}
}

func (w *joinWait) beat() {
	b := w.tap.broker
	release, err := b.use()
	if err != nil {
		return // closed
	}
	defer release()
	if info := b.cluster.GroupInfo(w.group); info != nil {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group = w.group
		req.Generation = info.Epoch
		req.MemberID = w.member
		req.InstanceID = w.instance
		ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
		defer cancel()
		_, _ = req.RequestWith(ctx, b.client) // an error means that the wait is over, or the member gone
		w.tap.alive(w.member, true)
	}
	w.tap.mu.Lock()
	defer w.tap.mu.Unlock()
	if w.every > 0 {
		w.timer.Reset(w.every)
	}
}
