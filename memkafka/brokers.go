package memkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxRehash bounds the search for coordinators, each try of which moves them all at random. It is enough for about ten
// groups on two brokers; of more, some find their coordinator on a stopped broker, and then another when they ask.
const maxRehash = 1000

// stops are the brokers that are stopped. To kfake they are alive: it would move everything to another broker if one is
// removed, what is led by others as well, and never again have a controller if it was that. So they are only cut off the
// network, and what they lead and coordinate is moved.
type stops struct {
	any     atomic.Bool // is stopped
	mu      sync.Mutex
	stopped map[int32]bool
	keys    map[string]bool // groups and transactional IDs that somebody asked the coordinator of
}

// StopBroker makes a broker unreachable: connections to it are reset, dials refused, and it is in no metadata. Other
// brokers, if there are any, take over the partitions that it leads, in turn, and the groups that it coordinates;
// coordinators of other groups may move as well. Nothing is lost. It fails if there is no such broker; the first is 0.
// Stopping it twice is harmless. If no other broker is up, its partitions and groups wait for it.
//
// While the last broker, the controller, is stopped, clients can neither create nor delete topics; the methods of Broker
// can.
func (b *Broker) StopBroker(id int32) {
	b.t.Helper()
	if err := b.stopBroker(id); err != nil {
		b.fail("stop broker %d: %w", id, err)
	}
}

// StartBroker makes a stopped broker reachable again. Partitions and groups stay where they are, as in Kafka: use
// [Broker.MoveLeader]. It fails if there is no such broker. Starting one that is up is harmless.
func (b *Broker) StartBroker(id int32) {
	b.t.Helper()
	if err := b.checkBroker(id); err != nil {
		b.fail("start broker %d: %w", id, err)
	}
	b.stops.mu.Lock()
	was := b.stops.stopped[id]
	delete(b.stops.stopped, id)
	b.stops.any.Store(len(b.stops.stopped) > 0)
	b.stops.mu.Unlock()
	b.network.setStopped(firstPort+int(id), false)
	if was {
		b.log.add("broker %d is started", id)
	}
}

// MoveLeader makes another broker lead a partition. It fails if the topic, the partition or the broker does not exist, or
// the broker is stopped. Clients are told NOT_LEADER_OR_FOLLOWER by the old one, and look up the new one.
func (b *Broker) MoveLeader(topic string, partition, to int32) {
	b.t.Helper()
	if err := b.moveLeader(topic, partition, to); err != nil {
		b.fail("move the leader of topic %q, partition %d to broker %d: %w", topic, partition, to, err)
	}
}

// MoveCoordinator makes another broker coordinate a group, whether it exists or not. It fails if no other broker is up.
// Clients are told NOT_COORDINATOR by the old one, and look up the new one. Coordinators of other groups may move as well.
func (b *Broker) MoveCoordinator(group string) {
	b.t.Helper()
	if err := b.moveCoordinator(group); err != nil {
		b.fail("move the coordinator of group %q: %w", group, err)
	}
}

func (b *Broker) checkBroker(id int32) error {
	if id < 0 || int(id) >= b.brokers {
		return fmt.Errorf("there are brokers 0 to %d", b.brokers-1)
	}
	return nil
}

func (b *Broker) stopBroker(id int32) error {
	if err := b.checkBroker(id); err != nil {
		return err
	}
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	b.stops.mu.Lock()
	was := b.stops.stopped[id]
	if b.stops.stopped == nil {
		b.stops.stopped = make(map[int32]bool)
	}
	b.stops.stopped[id] = true
	b.stops.any.Store(true)
	b.stops.mu.Unlock()
	if was {
		return nil
	}
	b.log.add("broker %d is stopped", id)
	topics, err := b.topics()
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if err := b.leadElsewhere(topic); err != nil {
			return err
		}
	}
	b.coordinateElsewhere("")
	b.network.setStopped(firstPort+int(id), true)
	return nil
}

// isStopped tells whether a broker is.
func (b *Broker) isStopped(id int32) bool {
	b.stops.mu.Lock()
	defer b.stops.mu.Unlock()
	return b.stops.stopped[id]
}

// up returns the brokers that are not stopped.
func (b *Broker) up() []int32 {
	b.stops.mu.Lock()
	defer b.stops.mu.Unlock()
	var up []int32
	for id := range int32(b.brokers) {
		if !b.stops.stopped[id] {
			up = append(up, id)
		}
	}
	return up
}

// topics lists all topics.
func (b *Broker) topics() ([]string, error) {
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest() // no topics: all
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return nil, b.why(ctx, err)
	}
	var topics []string
	for _, t := range resp.Topics {
		if t.Topic != nil && t.ErrorCode == 0 {
			topics = append(topics, *t.Topic)
		}
	}
	slices.Sort(topics)
	return topics, nil
}

// leadElsewhere takes the topic's partitions from stopped brokers.
func (b *Broker) leadElsewhere(topic string) error {
	up := b.up()
	if len(up) == 0 || len(up) == b.brokers {
		return nil
	}
	defer b.tap.changes.happen()
	for _, info := range b.cluster.PartitionInfos(topic) {
		if slices.Contains(up, info.Leader) {
			continue
		}
		to := up[int(info.Partition)%len(up)]
		if err := b.cluster.MoveTopicPartition(topic, info.Partition, to); err != nil {
			return fmt.Errorf("topic %q, partition %d: %w", topic, info.Partition, err)
		}
		b.log.add("topic %q: partition %d is now led by broker %d", topic, info.Partition, to)
	}
	return nil
}

// keepCoordinatorsUp looks at who is asked for, so that nobody is sent to a stopped broker.
func (b *Broker) keepCoordinatorsUp() {
	b.cluster.ControlKey(int16(kmsg.FindCoordinator), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.FindCoordinatorRequest)
		for _, key := range append(slices.Clone(req.CoordinatorKeys), req.CoordinatorKey) {
			if key != "" {
				b.coordinateElsewhere(key)
			}
		}
		return nil, nil, false
	})
}

// coordinateElsewhere moves coordinators if that of key is on a stopped broker, or with no key any that was asked for:
// until none of them is, or at least not that of key if that takes too long.
func (b *Broker) coordinateElsewhere(key string) {
	b.stops.mu.Lock()
	if key != "" {
		if b.stops.keys == nil {
			b.stops.keys = make(map[string]bool)
		}
		b.stops.keys[key] = true
	}
	var keys []string
	if len(b.stops.stopped) > 0 {
		for k := range b.stops.keys {
			keys = append(keys, k)
		}
	}
	b.stops.mu.Unlock()
	up := b.up()
	if len(keys) == 0 || len(up) == 0 {
		return
	}
	onStopped := func(key string) bool { return !slices.Contains(up, b.cluster.CoordinatorFor(key)) }
	if key != "" && !onStopped(key) {
		return
	}
	for try := 0; try < maxRehash && slices.ContainsFunc(keys, onStopped); try++ {
		b.cluster.RehashCoordinators()
	}
	for key != "" && onStopped(key) {
		b.cluster.RehashCoordinators()
	}
}

func (b *Broker) moveLeader(topic string, partition, to int32) error {
	if err := b.checkBroker(to); err != nil {
		return err
	}
	if b.isStopped(to) {
		return errors.New("it is stopped: start it first")
	}
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	infos, err := b.partitions(topic)
	if err != nil {
		return err
	}
	if partition < 0 || int(partition) >= len(infos) {
		return fmt.Errorf("the topic has partitions 0 to %d", len(infos)-1)
	}
	err = b.cluster.MoveTopicPartition(topic, partition, to)
	b.tap.changes.happen()
	if err != nil {
		return err
	}
	b.log.add("topic %q: partition %d is now led by broker %d", topic, partition, to)
	return nil
}

func (b *Broker) moveCoordinator(group string) error {
	if group == "" {
		return errors.New("a group needs a name")
	}
	if up := b.up(); len(up) < 2 {
		return fmt.Errorf("%d brokers are up: make the broker with memkafka.Brokers(2) or more", len(up))
	}
	release, err := b.use()
	if err != nil {
		return err
	}
	defer release()
	for before, try := b.cluster.CoordinatorFor(group), 0; try < maxRehash; try++ {
		b.cluster.RehashCoordinators()
		if now := b.cluster.CoordinatorFor(group); now != before && !b.isStopped(now) {
			b.coordinateElsewhere("")
			if now = b.cluster.CoordinatorFor(group); now != before {
				b.log.add("group %q: broker %d is now the coordinator", group, now)
				return nil
			}
		}
	}
	return errors.New("it does not move: that is a defect of memkafka")
}

// hideStopped takes stopped brokers out of an answer to a metadata request.
func (b *Broker) hideStopped(resp *kmsg.MetadataResponse) {
	resp.Brokers = slices.DeleteFunc(resp.Brokers, func(mb kmsg.MetadataResponseBroker) bool { return b.isStopped(mb.NodeID) })
	if b.isStopped(resp.ControllerID) {
		resp.ControllerID = -1
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), b.isStopped)
			if b.isStopped(p.Leader) { // nobody else could take over
				p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
			}
		}
	}
}
