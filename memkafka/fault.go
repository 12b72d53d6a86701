package memkafka

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fault is something that goes wrong with requests of a kind until it has happened often enough or is healed. Its
// methods may be called from any goroutine.
type Fault struct {
	broker *Broker
	kind   kmsg.Key
	what   faultAction
	err    *kerr.Error   // failing
	delay  time.Duration // delaying

	applied    bool
	topic      string  // "": any
	partitions []int32 // nil: any
	group      string  // "": any
	member     string  // "": any
	node       int32   // -1: any
	times      int     // 0: any number

	handle *kfake.FaultHandle // failing
	healed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	hits    int
	last    kmsg.Request  // the one that was hit last, when kfake asks
	changed chan struct{} // closed when hits changes
}

type faultAction int

const (
	failing faultAction = iota
	delaying
	disconnecting
	swallowing
)

// Fail answers requests of the kind with the error, and the broker does not do what they ask; except for
// kerr.RequestTimedOut, and kerr.NotEnoughReplicasAfterAppend for kmsg.Produce, with which Kafka answers what it may
// have done: with them the broker does it.
//
// Of requests for several partitions, topics or groups only those fail that the options select, as in Kafka. Errors of
// a whole fetch, like kerr.FetchSessionIDNotFound, can't be selected by topic.
//
// Fail does not concern the methods of Broker; nor do the other faults.
//
// Fail, Delay, Disconnect and Swallow fail the test if an option does not make sense for the kind, for which the options
// have a list.
func (b *Broker) Fail(kind kmsg.Key, err *kerr.Error, opts ...FaultOption) *Fault {
	b.t.Helper()
	return b.fault(&Fault{kind: kind, what: failing, err: err}, opts)
}

// Delay makes the broker take up requests of the kind only d after they came. As in Kafka, requests that come later by
// the same connection have to wait as well; those of other connections do not. Mind which share one: a kgo client has
// one each for producing, fetching, joining groups, and for everything else, so a commit that takes longer than the
// session timeout costs the member its membership, because its heartbeats are stuck behind it. The option Applied leaves
// the broker alone and delays only the answer, and those behind it.
//
// A client that loses patience (kgo: 10 s after the request's own timeout) closes the connection; the broker then acts
// on the request nevertheless, when its time has come. [Fault.Heal] lets go what is waiting. The delay is virtual time
// in a bubble. It has to be positive.
func (b *Broker) Delay(kind kmsg.Key, d time.Duration, opts ...FaultOption) *Fault {
	b.t.Helper()
	return b.fault(&Fault{kind: kind, what: delaying, delay: d}, opts)
}

// Disconnect closes the connection instead of answering requests of the kind. The broker does not do what they ask,
// except with the option Applied. What was asked before by the same connection is answered first.
func (b *Broker) Disconnect(kind kmsg.Key, opts ...FaultOption) *Fault {
	b.t.Helper()
	return b.fault(&Fault{kind: kind, what: disconnecting}, opts)
}

// Swallow never answers requests of the kind, and leaves the connection open. The broker does not do what they ask,
// except with the option Applied.
//
// Because the answers of a connection have to be in order, nothing that is sent after such a request by the same
// connection is answered either: the connection is dead, and nobody says so. The client has to find out itself (kgo does
// 10 s after the request's own timeout) and open another one, by which all other kinds of requests get through. Healing
// the fault does not revive dead connections.
func (b *Broker) Swallow(kind kmsg.Key, opts ...FaultOption) *Fault {
	b.t.Helper()
	return b.fault(&Fault{kind: kind, what: swallowing}, opts)
}

func (b *Broker) fault(f *Fault, opts []FaultOption) *Fault {
	b.t.Helper()
	f.broker, f.node = b, -1
	f.healed, f.changed = make(chan struct{}), make(chan struct{})
	if err := f.configure(opts); err != nil {
		b.fail("%s: %w", f, err)
	}
	release, err := b.use()
	if err != nil {
		b.fail("%s: %w", f, err)
	}
	defer release()
	if f.what == failing {
		f.failInCluster()
	}
	b.tap.setFaults(int16(f.kind), func(fs []*Fault) []*Fault { return append(slices.Clip(fs), f) })
	b.log.add("fault in force: %s", f)
	return f
}

func (f *Fault) configure(opts []FaultOption) error {
	if kmsg.RequestForKey(int16(f.kind)) == nil {
		return errors.New("there is no such kind of request: give one of kmsg's keys, like kmsg.OffsetCommit")
	}
	if f.what == failing && f.err == nil {
		return errors.New("which error? Give one of kerr's")
	}
	if f.what == delaying && f.delay <= 0 {
		return errors.New("the delay has to be positive")
	}
	for _, opt := range opts {
		if opt == nil {
			return errors.New("an option is nil")
		}
		if err := opt(f); err != nil {
			return err
		}
	}
	if f.topLevel() && (f.topic != "" || f.partitions != nil) {
		return fmt.Errorf("%s is an error of the whole fetch: leave out OnTopic and OnPartitions", f.err.Message)
	}
	return nil
}

// topLevel tells whether the error belongs into the field for errors of the whole response, which for most kinds kfake
// knows by itself.
func (f *Fault) topLevel() bool {
	switch f.err {
	case kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError:
		return f.kind == kmsg.Fetch
	}
	return false
}

// failInCluster has kfake make the answers, which differ a lot. Who asks, and how often that was, is for us to say.
func (f *Fault) failInCluster() {
	kf := kfake.Fault{
		Keys:       []kmsg.Key{f.kind},
		Topic:      f.topic,
		Partitions: f.partitions,
		Group:      f.group,
		TopLevel:   f.topLevel(),
		Err:        f.err,
		Count:      -1,
		When:       func(req kmsg.Request) bool { return f.strikes(req) },
	}
	if f.node >= 0 {
		kf.Nodes = []int32{f.node}
	}
	f.handle = f.broker.cluster.Fault(kf)
}

// strikes decides whether a request is to fail that kfake has found to be selected. It is called for each partition of
// it, and more than once.
func (f *Fault) strikes(req kmsg.Request) bool {
	w := f.broker.tap.senderOf(req)
	switch {
	case w != nil:
		if !f.isFrom(w, req) {
			return false
		}
	case req.IsFlexible():
		return false // without a tag it is the broker's own, or was under way before there was this fault
	case f.member != "" && !slices.Contains(membersOf(req), f.member):
		return false // too old for tags
	}
	return f.take(req, w)
}

// take counts a hit, if there is one left. A request that is given again is the same hit.
func (f *Fault) take(req kmsg.Request, w *wire) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if req != nil && req == f.last {
		return true
	}
	if f.spentLocked() {
		return false
	}
	f.last = req
	f.hits++
	close(f.changed)
	f.changed = make(chan struct{})
	if w == nil {
		f.broker.log.add("fault hits: %s", f)
	} else {
		f.broker.log.add("fault hits %s: %s", w, f)
	}
	return true
}

// spent tells that it will not hit any more.
func (f *Fault) spent() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.spentLocked()
}

func (f *Fault) spentLocked() bool {
	return f.times > 0 && f.hits >= f.times || isClosed(f.healed)
}

// Heal ends the fault: from now on nothing goes wrong because of it, and requests that it delays go on. Healing it twice
// is harmless.
func (f *Fault) Heal() {
	f.once.Do(func() {
		close(f.healed)
		f.broker.tap.setFaults(int16(f.kind), func(fs []*Fault) []*Fault {
			return slices.DeleteFunc(slices.Clone(fs), func(o *Fault) bool { return o == f })
		})
		if f.handle != nil {
			f.handle.Remove()
		}
		f.broker.log.add("fault healed: %s", f)
	})
}

// Hits returns how many requests the fault has concerned so far.
func (f *Fault) Hits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits
}

// Wait waits until the fault has concerned n requests or more. It waits for up to a minute (of virtual time in a bubble)
// and then fails.
func (f *Fault) Wait(n int) {
	f.broker.t.Helper()
	deadline := time.NewTimer(waitTimeout)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		hits, changed := f.hits, f.changed
		f.mu.Unlock()
		if hits >= n {
			return
		}
		select {
		case <-changed:
		case <-f.broker.ctx.Done():
			f.broker.fail("wait for %d hits of %s: %w", n, f, errClosed)
		case <-deadline.C:
			f.broker.fail("wait for %d hits of %s: not within %v: it has hit %d times", n, f, waitTimeout, hits)
		}
	}
}

// String returns the call that made the fault, more or less.
func (f *Fault) String() string {
	kind := kindName(int16(f.kind))
	var call string
	switch f.what {
	case failing:
		name := "nil"
		if f.err != nil {
			name = f.err.Message
		}
		call = fmt.Sprintf("Fail(%s, %s", kind, name)
	case delaying:
		call = fmt.Sprintf("Delay(%s, %v", kind, f.delay)
	case disconnecting:
		call = fmt.Sprintf("Disconnect(%s", kind)
	case swallowing:
		call = fmt.Sprintf("Swallow(%s", kind)
	}
	return call + f.options() + ")"
}
