package memkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Rival is another member of a group: a plain kgo consumer, which takes partitions from the one under test and reads
// them, but never commits. Its methods may be called from any goroutine.
type Rival struct {
	broker *Broker
	name   string
	group  string
	topic  string
	host   *host
	opts   []kgo.Opt

	life atomic.Pointer[life] // the present one, or the last

	mu       sync.Mutex
	consumed []*kgo.Record
	hung     chan struct{} // closed by Resume; nil if it does not hang
	wants    []int32       // what Take said; nil if it was not called
}

// life is what a rival is between Join or ComeBack and Die or Leave: a client, and a loop that polls it.
type life struct {
	client *kgo.Client
	ctx    context.Context // the client's
	cancel context.CancelFunc

	stopPolling context.CancelFunc
	polling     chan struct{} // closed when the poll loop has ended
	ending      atomic.Bool
	ended       chan struct{}
}

// Join adds a member to the group, which consumes the topic: by default a cooperative-sticky one, from the start where
// nothing is committed. Options go to its client: kgo.Balancers(kgo.RangeBalancer()) makes it an eager member,
// kgo.ServerSideBalancer() one of the protocol of KIP-848; kgo.SessionTimeout, kgo.InstanceID, kgo.ClientID and others
// are as welcome. Group, network and context of the client are Join's own, whatever the options say. Join fails if the
// topic does not exist or kgo refuses the options.
//
// Join does not wait until the rival has partitions. It gets them when the other members let go, and those may be in the
// hands of the very goroutine that calls Join. Use [Broker.WaitStable].
//
// A rival that has neither left nor died when the broker closes dies then.
func (b *Broker) Join(group, topic string, opts ...kgo.Opt) *Rival {
	b.t.Helper()
	r, err := b.join(group, topic, opts)
	if err != nil {
		b.fail("join group %q: %w", group, err)
	}
	return r
}

func (b *Broker) join(group, topic string, opts []kgo.Opt) (*Rival, error) {
	release, err := b.use()
	if err != nil {
		return nil, err
	}
	defer release()
	if group == "" {
		return nil, fmt.Errorf("a group needs a name")
	}
	if _, err := b.partitions(topic); err != nil {
		return nil, err
	}

	b.mu.Lock()
	b.rivalSeq++
	name := fmt.Sprintf("rival-%d", b.rivalSeq)
	b.mu.Unlock()

	r := &Rival{broker: b, name: name, group: group, topic: topic, host: b.network.newHost(ordinary), opts: slices.Clone(opts)}
	if err := r.live(); err != nil {
		return nil, err
	}
	b.log.add("group %q: rival %q at %s is to join", group, r.life.Load().clientID(), r.host.ip)
	return r, nil
}

// live begins a life.
func (r *Rival) live() error {
	l := &life{polling: make(chan struct{}), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	all := []kgo.Opt{
		kgo.ClientID(r.name),
		kgo.ConsumeTopics(r.topic),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsRevoked(r.onRevoked),
	}
	all = append(all, r.opts...)
	all = append(all, kgo.ConsumerGroup(r.group), kgo.WithContext(l.ctx))
	all = append(all, r.broker.memberOptions(r.host)...)
	var err error
	l.client, err = kgo.NewClient(all...)
	if err != nil {
		l.cancel()
		return err
	}
	r.life.Store(l)
	var pollCtx context.Context
	pollCtx, l.stopPolling = context.WithCancel(l.ctx)
	go r.poll(pollCtx, l)

	b := r.broker
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.rivals[r] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		r.Die()
		return errClosed
	}
	return nil
}

func (l *life) clientID() string {
	id, _ := l.client.OptValue(kgo.ClientID).(string)
	return id
}

func (r *Rival) poll(ctx context.Context, l *life) {
	defer close(l.polling)
	for {
		fetches := l.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			l.client.AllowRebalance()
			return
		}
		records := fetches.Records()
		r.mu.Lock()
		r.consumed = append(r.consumed, records...)
		r.mu.Unlock()
		l.client.AllowRebalance() // matters only with kgo.BlockRebalanceOnPoll
		if len(records) == 0 {
			// kgo returns some errors at once and for ever. In a bubble that would stop time.
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// Assigned returns the partitions of the topic that the group has given to the rival, in order: none before its first
// rebalance, nor once the group has done without it. This is the broker's view, as [Broker.WaitStable] has it: a rival
// that died has its partitions until its session times out.
func (r *Rival) Assigned() []int32 {
	r.broker.t.Helper()
	info, err := r.broker.group(r.group)
	if err != nil {
		r.broker.fail("look at group %q: %w", r.group, err)
	}
	id, _ := r.life.Load().client.GroupMetadata()
	for _, m := range info.Members {
		if m.MemberID == id {
			return slices.Sorted(slices.Values(m.Assignment[r.topic]))
		}
	}
	return nil
}

// Consumed returns what the rival has read so far, in the order in which it did. The records are kept for that until the
// test ends.
func (r *Rival) Consumed() []*kgo.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.consumed)
}

// Leave makes the rival leave its group and returns when it is gone: the others rebalance at once. If it is in the
// middle of a rebalance that others hold up, it leaves after a second nevertheless. As Kafka has it, a static member
// (kgo.InstanceID) only goes away, and keeps its partitions until its session times out, unless it comes back before.
// After Die or another Leave it does nothing.
func (r *Rival) Leave() {
	r.end("leaves", func(l *life) {
		l.stopPolling()
		<-l.polling
		ctx, cancel := context.WithTimeout(r.broker.ctx, time.Second)
		defer cancel()
		err := l.client.LeaveGroupContext(ctx)
		r.host.cutOff() // from here on it cannot join again
		if err != nil {
			r.leaveForIt(l)
		}
	})
}

// Die makes the rival vanish without leaving its group, as a process does that is killed: its host is cut off the
// network first, so that the broker finds out only when its session times out (45 s by default). Its goroutines have
// ended when Die returns; only hooks of its options that ignore their context can hold that up. After Leave or another
// Die it does nothing.
func (r *Rival) Die() {
	r.end("dies", func(l *life) {
		r.host.cutOff()
		l.cancel()
		<-l.polling
	})
}

// ComeBack makes a rival that has left or died join its group again, from the same host and with the same options: a new
// member, or with kgo.InstanceID the same static one. It does not hang, even if it did before, and wants what
// [Rival.Take] said. Consumed goes on where it was. ComeBack fails if the rival has neither left nor died. Like
// [Broker.Join], it does not wait until the rival has partitions.
func (r *Rival) ComeBack() {
	r.broker.t.Helper()
	if err := r.comeBack(); err != nil {
		r.broker.fail("let rival %q come back: %w", r.name, err)
	}
}

func (r *Rival) comeBack() error {
	release, err := r.broker.use()
	if err != nil {
		return err
	}
	defer release()
	l := r.life.Load()
	if !l.ending.Load() {
		return errors.New("it is there: call Die or Leave first")
	}
	<-l.ended
	r.Resume()
	r.host.setCut(false)
	r.broker.log.add("group %q: rival %q at %s comes back", r.group, l.clientID(), r.host.ip)
	return r.live()
}

// Hang makes the rival hold the next revocation, and all others, until [Rival.Resume], as a member does whose callback is
// busy; its heartbeats go on. Under an eager protocol each rebalance begins with a revocation, so the whole group waits
// in its join for the rival, up to the rebalance timeout (kgo.RebalanceTimeout, 60 s by default), after which the broker
// goes on without it. Under KIP-848 only the partitions that are to move wait, for as long. Under a cooperative protocol
// they do, too, but without an end, unless another rebalance begins. Hang fails if an option of the rival is kgo.OnPartitionsRevoked, which
// it would have to call.
func (r *Rival) Hang() {
	r.broker.t.Helper()
	if !r.life.Load().callsOurs() {
		r.broker.fail("let rival %q hang: it has an OnPartitionsRevoked of its own: leave that option out, or block there", r.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung == nil {
		r.hung = make(chan struct{})
		r.broker.log.add("group %q: rival %q hangs from its next revocation on", r.group, r.name)
	}
}

// Resume lets a rival that hangs go on. If it does not, that does nothing.
func (r *Rival) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hung != nil {
		close(r.hung)
		r.hung = nil
		r.broker.log.add("group %q: rival %q goes on", r.group, r.name)
	}
}

// probe is in the context of a call that only wants to know whose hook it is.
type probe struct{}

// callsOurs tells whether the client calls onRevoked. kgo wraps hooks, so one has to call it to know; kgo itself calls
// hooks with nothing at each rebalance, so that does no harm to another one.
func (l *life) callsOurs() bool {
	hook, ok := l.client.OptValue(kgo.OnPartitionsRevoked).(func(context.Context, *kgo.Client, map[string][]int32))
	ours := false
	if ok {
		hook(context.WithValue(l.ctx, probe{}, &ours), l.client, nil)
	}
	return ours
}

func (r *Rival) onRevoked(ctx context.Context, client *kgo.Client, lost map[string][]int32) {
	if ours, ok := ctx.Value(probe{}).(*bool); ok {
		*ours = true
		return
	}
	r.mu.Lock()
	hung := r.hung
	r.mu.Unlock()
	l := r.life.Load()
	if hung == nil || len(lost) == 0 || l.client != client {
		return
	}
	r.broker.log.add("group %q: rival %q holds on to %s", r.group, r.name, describePartitions(lost))
	select {
	case <-hung:
	case <-l.ctx.Done(): // it dies
	}
}

// end calls how, once in a life, and then ends the client, without a word to the broker.
func (r *Rival) end(does string, how func(*life)) {
	l := r.life.Load()
	if !l.ending.CompareAndSwap(false, true) { // not a sync.Once: nobody should wait for a mutex in a bubble
		<-l.ended
		return
	}
	defer close(l.ended)
	r.broker.log.add("group %q: rival %q at %s %s", r.group, l.clientID(), r.host.ip, does)
	how(l)
	l.cancel()
	l.client.CloseAllowingRebalance()
	r.broker.mu.Lock()
	delete(r.broker.rivals, r)
	r.broker.mu.Unlock()
}

// leaveForIt tells the broker that the rival has left. kgo itself sends that only after the join in flight has ended, for
// which it may have to wait as long as another member takes to let go of its partitions.
func (r *Rival) leaveForIt(l *life) {
	if id, ok := l.client.OptValue(kgo.InstanceID).(string); ok && id != "" {
		return
	}
	id, _ := l.client.GroupMetadata()
	_ = r.broker.removeClassic(r.group, kfake.GroupMember{MemberID: id}) // an error means that the broker does not know it, which is what we are after
}
