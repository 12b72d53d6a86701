package memkafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Rival is another member of a group: a plain kgo consumer, which takes partitions from the one under test and reads
// them, but never commits. Its methods may be called from any goroutine.
type Rival struct {
	broker *Broker
	group  string
	topic  string
	host   *host
	client *kgo.Client
	cancel context.CancelFunc // of the client's context

	stopPolling context.CancelFunc
	polling     chan struct{} // closed when the poll loop has ended
	ending      atomic.Bool
	ended       chan struct{}

	mu       sync.Mutex
	consumed []*kgo.Record
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

	r := &Rival{
		broker:  b,
		group:   group,
		topic:   topic,
		host:    b.network.newHost(ordinary),
		polling: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	all := []kgo.Opt{
		kgo.ClientID(name),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
	}
	all = append(all, opts...)
	all = append(all, kgo.ConsumerGroup(group), kgo.WithContext(ctx))
	all = append(all, b.memberOptions(r.host)...)
	r.client, err = kgo.NewClient(all...)
	if err != nil {
		cancel()
		return nil, err
	}
	r.cancel = cancel
	var pollCtx context.Context
	pollCtx, r.stopPolling = context.WithCancel(ctx)
	go r.poll(pollCtx)

	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.rivals[r] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
		r.Die()
		return nil, errClosed
	}
	return r, nil
}

func (r *Rival) poll(ctx context.Context) {
	defer close(r.polling)
	for {
		fetches := r.client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			r.client.AllowRebalance()
			return
		}
		records := fetches.Records()
		r.mu.Lock()
		r.consumed = append(r.consumed, records...)
		r.mu.Unlock()
		r.client.AllowRebalance() // matters only with kgo.BlockRebalanceOnPoll
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
	id, _ := r.client.GroupMetadata()
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
// (kgo.InstanceID) only goes away, and keeps its partitions until its session times out, unless it comes back before;
// under KIP-848 kfake has it keep them until it comes back. After Die or another Leave it does nothing.
func (r *Rival) Leave() {
	r.end(func() {
		r.stopPolling()
		<-r.polling
		ctx, cancel := context.WithTimeout(r.broker.ctx, time.Second)
		defer cancel()
		err := r.client.LeaveGroupContext(ctx)
		r.host.cutOff() // from here on it cannot join again
		if err != nil {
			r.leaveForIt()
		}
	})
}

// Die makes the rival vanish without leaving its group, as a process does that is killed: its host is cut off the
// network first, so that the broker finds out only when its session times out (45 s by default). Its goroutines have
// ended when Die returns; only hooks of its options that ignore their context can hold that up. After Leave or another Die it does nothing.
func (r *Rival) Die() {
	r.end(func() {
		r.host.cutOff()
		r.cancel()
		<-r.polling
	})
}

// end calls how, once, and then ends the client, without a word to the broker.
func (r *Rival) end(how func()) {
	if !r.ending.CompareAndSwap(false, true) { // not a sync.Once: nobody should wait for a mutex in a bubble
		<-r.ended
		return
	}
	defer close(r.ended)
	how()
	r.cancel()
	r.client.CloseAllowingRebalance()
	r.broker.mu.Lock()
	delete(r.broker.rivals, r)
	r.broker.mu.Unlock()
}

// leaveForIt tells the broker that the rival has left. kgo itself sends that only after the join in flight has ended, for
// which it may have to wait as long as another member takes to let go of its partitions.
func (r *Rival) leaveForIt() {
	if id, ok := r.client.OptValue(kgo.InstanceID).(string); ok && id != "" {
		return
	}
	release, err := r.broker.use()
	if err != nil {
		return // closed: everything is over
	}
	defer release()
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID, _ = r.client.GroupMetadata()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = r.group
	req.Members = append(req.Members, member)
	ctx, cancel := context.WithTimeout(r.broker.ctx, time.Second)
	defer cancel()
	// An error means that the broker does not know the member, which is what we are after.
	_, _ = req.RequestWith(ctx, r.broker.client)
}
