package memkafka

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Take makes the rival have these partitions of its topic and no others, from the next rebalance on, which it forces, for
// as long as the rival is a member; only what no other member could have stays with it. Another rival that wanted one of
// them gives it up. With no partitions it gives up all. Take does not wait for the rebalance: use [Broker.WaitStable].
//
// That is done by writing anew what the leader of the group sends to the broker. So it works under the classic protocols;
// under KIP-848, where the broker decides, kfake can't be told to, and Take fails. It also fails if a partition does not
// exist, or the rival has left or died.
func (r *Rival) Take(partitions ...int32) {
	r.broker.t.Helper()
	if err := r.take(partitions); err != nil {
		r.broker.fail("let rival %q take partitions %v of topic %q: %w", r.name, partitions, r.topic, err)
	}
}

func (r *Rival) take(partitions []int32) error {
	b := r.broker
	l := r.life.Load()
	if l.ending.Load() {
		return errors.New("it has left or died: call ComeBack first")
	}
	if serverSide, _ := l.client.OptValue(kgo.ServerSideBalancer).(bool); serverSide {
		return errors.New("under KIP-848 the broker decides who has what: use a classic protocol (leave out kgo.ServerSideBalancer), or several rivals")
	}
	infos, err := b.partitions(r.topic)
	if err != nil {
		return err
	}
	for _, p := range partitions {
		if p < 0 || int(p) >= len(infos) {
			return fmt.Errorf("there is no partition %d, only 0 to %d", p, len(infos)-1)
		}
	}
	b.mu.Lock()
	others := slices.Collect(maps.Keys(b.rivals))
	b.mu.Unlock()
	for _, o := range others {
		if o != r && o.group == r.group && o.topic == r.topic {
			o.mu.Lock()
			o.wants = slices.DeleteFunc(o.wants, func(p int32) bool { return slices.Contains(partitions, p) })
			o.mu.Unlock()
		}
	}
	r.mu.Lock()
	r.wants = slices.Compact(slices.Sorted(slices.Values(append([]int32{}, partitions...))))
	if r.wants == nil {
		r.wants = []int32{}
	}
	r.mu.Unlock()
	b.log.add("group %q: rival %q is to take %s%v", r.group, r.name, r.topic, partitions)
	if info, err := b.group(r.group); err != nil || len(info.Members) == 0 {
		return err // its join is a rebalance anyway
	}
	return b.forceRebalance(r.group)
}

// assignAsWanted rewrites what leaders send.
func (b *Broker) assignAsWanted() {
	b.cluster.ControlKey(int16(kmsg.SyncGroup), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.SyncGroupRequest)
		if len(req.GroupAssignment) > 0 {
			for _, topic := range b.wantedTopics(req.Group) {
				b.rewrite(req, topic)
			}
		}
		return nil, nil, false
	})
}

// wanting returns the group's rivals that want particular partitions of a topic.
func (b *Broker) wanting(group string) []*Rival {
	b.mu.Lock()
	rivals := slices.Collect(maps.Keys(b.rivals))
	b.mu.Unlock()
	return slices.DeleteFunc(rivals, func(r *Rival) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.group != group || r.wants == nil
	})
}

func (b *Broker) wantedTopics(group string) []string {
	var topics []string
	for _, r := range b.wanting(group) {
		topics = append(topics, r.topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// rewrite changes the assignment of one topic.
func (b *Broker) rewrite(req *kmsg.SyncGroupRequest, topic string) {
	info := b.cluster.GroupInfo(req.Group)
	if info == nil {
		return
	}
	d := &division{wanted: make(map[string][]int32), has: make(map[string][]int32), owned: make(map[int32]string)}
	rivals := b.wanting(req.Group)
	for _, m := range info.Members {
		if slices.Contains(m.SubscribedTopics, topic) {
			d.members = append(d.members, m.MemberID)
		}
		for _, r := range rivals {
			if ip, _, _ := net.SplitHostPort(m.ClientHost); r.topic == topic && ip == r.host.ip.String() {
				r.mu.Lock()
				d.wanted[m.MemberID] = slices.Clone(r.wants)
				r.mu.Unlock()
			}
		}
	}
	if len(d.wanted) == 0 {
		return
	}
	assignments := make([]kmsg.ConsumerMemberAssignment, len(req.GroupAssignment))
	for i, ga := range req.GroupAssignment {
		if assignments[i].ReadFrom(ga.MemberAssignment) != nil {
			return // not a consumer's
		}
		d.has[ga.MemberID] = nil
		for _, t := range assignments[i].Topics {
			if t.Topic == topic {
				d.has[ga.MemberID] = append(d.has[ga.MemberID], t.Partitions...)
			}
		}
	}
	b.tap.mu.Lock()
	for id := range d.has {
		if m := b.tap.members[id]; m != nil {
			for p := range m.owned[topic] {
				d.owned[p] = id
			}
		}
	}
	b.tap.mu.Unlock()
	for p := range int32(len(b.cluster.PartitionInfos(topic))) {
		d.all = append(d.all, p)
	}
	d.divide()

	for i := range req.GroupAssignment {
		ga, a := &req.GroupAssignment[i], &assignments[i]
		a.Topics = slices.DeleteFunc(a.Topics, func(t kmsg.ConsumerMemberAssignmentTopic) bool { return t.Topic == topic })
		if ps := d.has[ga.MemberID]; len(ps) > 0 {
			t := kmsg.NewConsumerMemberAssignmentTopic()
			t.Topic, t.Partitions = topic, ps
			a.Topics = append(a.Topics, t)
		}
		ga.MemberAssignment = a.AppendTo(nil)
	}
}

// division is who has which partitions of a topic.
type division struct {
	all     []int32
	members []string           // that may have some
	has     map[string][]int32 // by member ID: at first, what the leader thought
	wanted  map[string][]int32 // by member ID, of those that want particular ones
	owned   map[int32]string   // who has it still, under a cooperative protocol
}

// divide gives those who want particular partitions these, and leaves all else as it is, as far as that is fair among the
// others. A cooperative leader leaves out partitions that it wants to move, and kgo's wants to move many, because it
// knows nothing of what is wanted.
func (d *division) divide() {
	wantedBy := make(map[int32]string)
	for id, ps := range d.wanted {
		for _, p := range ps {
			wantedBy[p] = id
		}
	}
	var others []string
	for _, id := range d.members {
		if _, ok := d.wanted[id]; !ok {
			others = append(others, id)
		}
	}
	if len(others) == 0 { // nobody else could have the rest
		others = d.members
	}
	fair := (len(d.all) - len(wantedBy) + len(others) - 1) / max(1, len(others))

	planned := make(map[int32]string)
	for id, ps := range d.has {
		for _, p := range ps {
			planned[p] = id
		}
	}
	clear(d.has)
	var pool []int32
	for _, p := range d.all {
		to, ok := wantedBy[p]
		if !ok {
			for _, id := range []string{planned[p], d.owned[p]} {
				if slices.Contains(others, id) && len(d.has[id]) < fair {
					to = id
					break
				}
			}
		}
		if to == "" {
			pool = append(pool, p)
			continue
		}
		d.has[to] = append(d.has[to], p)
	}
	for _, p := range pool {
		if len(others) > 0 {
			to := slices.MinFunc(others, func(a, b string) int { return cmp.Compare(len(d.has[a]), len(d.has[b])) })
			d.has[to] = append(d.has[to], p)
		}
	}
	for id, ps := range d.has {
		d.has[id] = slices.Sorted(slices.Values(slices.DeleteFunc(ps, func(p int32) bool {
			owner := d.owned[p]
			return owner != "" && owner != id // next time, when the owner has let go
		})))
	}
}
