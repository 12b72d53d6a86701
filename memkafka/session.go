package memkafka

import "time"

// consumerSession is the session timeout of KIP-848 groups, on which the brokers decide.
const consumerSession = 45 * time.Second

// sessionWatch notes in the log when a member is expired, which nobody is told at the time.
type sessionWatch struct {
	timeout time.Duration
	last    time.Time // guarded by tap.mu
	timer   *time.Timer
}

// note begins to watch a member that has joined, or joined again. A static one takes the place of the one that it was
// before.
func (t *tap) note(id string, m *memberNotes, timeout time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m.id = id
	for _, old := range t.members {
		if old.id == id || m.instance != nil && old.instance != nil && *old.instance == *m.instance && old.group == m.group {
			t.dropLocked(old)
		}
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

// drop forgets a member, and tells whether it was there.
func (t *tap) drop(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	if m != nil {
		t.dropLocked(m)
	}
	return m != nil
}

func (t *tap) dropLocked(m *memberNotes) {
	m.watch.timer.Stop()
	m.revocation.stop()
	delete(t.members, m.id)
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
	away := m.away != nil
	t.mu.Unlock()

	if away {
		_ = t.broker.removeConsumer(m.group, id) // an error means that it is back, with another ID
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
	for _, m := range t.members {
		t.dropLocked(m)
	}
	for w := range t.waits {
		w.endLocked()
	}
}
