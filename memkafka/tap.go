package memkafka

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// tap is what sees the requests of all connections before the brokers do, and the answers before the clients do.
type tap struct {
	broker *Broker // set before the first connection
	log    *eventLog

	// faults are those in force, by kind. The map is never written to: a change makes another.
	faults atomic.Pointer[map[int16][]*Fault]

	changes logChanges

	mu      sync.Mutex
	tagged  map[uint32]*wire // connections whose requests carry tags, by what the tags say
	tags    uint32
	members map[string]*memberNotes // by member ID
	waits   map[*joinWait]struct{}
	leaders map[string]string // member IDs by classic group
	cuts    map[topicPartition][]truncation
	topics  map[[16]byte]string // names by ID
}

// memberNotes is what requests and answers told of a member of a group.
type memberNotes struct {
	id     string
	group  string
	client string
	host   *host
	join   *kmsg.JoinGroupRequest    // its last one, under a classic protocol
	owned  map[string]map[int32]bool // what it said then that it has
	watch  *sessionWatch             // notes when it expires

	instance *string // of a static member

	// Of KIP-848.
	away       *kmsg.ConsumerGroupHeartbeatRequest // with which such a one has left, maybe to come back
	epoch      int32                               // of the group when it did
	revocation revocation
}

func newTap() *tap {
	return &tap{
		log:     newEventLog(),
		tagged:  make(map[uint32]*wire),
		members: make(map[string]*memberNotes),
		waits:   make(map[*joinWait]struct{}),
		leaders: make(map[string]string),
		cuts:    make(map[topicPartition][]truncation),
		topics:  make(map[[16]byte]string),
	}
}

// faultsOf returns the faults in force for requests of the kind.
func (t *tap) faultsOf(kind int16) []*Fault {
	faults := t.faults.Load()
	if faults == nil {
		return nil
	}
	return (*faults)[kind]
}

// setFaults makes another set of faults.
func (t *tap) setFaults(kind int16, change func([]*Fault) []*Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := make(map[int16][]*Fault)
	if old := t.faults.Load(); old != nil {
		for k, fs := range *old {
			next[k] = fs
		}
	}
	next[kind] = change(next[kind])
	if len(next[kind]) == 0 {
		delete(next, kind)
	}
	t.faults.Store(&next)
}

// tagOf returns what stands for the connection in the tags of its requests.
func (t *tap) tagOf(w *wire) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.tag == 0 {
		t.tags++
		w.tag = t.tags
		t.tagged[w.tag] = w
	}
	return w.tag
}

func (t *tap) wireOf(tag uint32) *wire {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tagged[tag]
}

// forget drops a connection that has ended.
func (t *tap) forget(w *wire) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.tagged, w.tag)
}

// leaderOf returns the member ID of a classic group's leader.
func (t *tap) leaderOf(group string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.leaders[group]
}

// topicName returns the name of the topic with that ID, if there is one.
func (t *tap) topicName(id [16]byte) string {
	t.mu.Lock()
	name, ok := t.topics[id]
	t.mu.Unlock()
	if ok || id == [16]byte{} {
		return name
	}
	release, err := t.broker.use()
	if err != nil {
		return ""
	}
	defer release()
	if info := t.broker.cluster.TopicIDInfo(id); info != nil {
		name = info.Topic
		t.mu.Lock()
		t.topics[id] = name
		t.mu.Unlock()
	}
	return name
}

// isMember tells whether the client at the other end of the connection has that member ID.
func (t *tap) isMember(w *wire, id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.members[id]
	return m != nil && m.host == w.link.host && m.client == w.clientID()
}

// describe names a member by its ID.
func (t *tap) describe(id string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[id]; m != nil {
		return describeClient(m.client, m.host)
	}
	return fmt.Sprintf("member %s", id)
}

func describeClient(id string, h *host) string { return fmt.Sprintf("client %q at %s", id, h.ip) }

func kindName(kind int16) string { return kmsg.NameForKey(kind) }
