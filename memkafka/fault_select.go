package memkafka

import (
	"encoding/binary"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// selects tells whether the fault's options select a request.
func (f *Fault) selects(w *wire, req kmsg.Request) bool {
	if f.node >= 0 && f.node != w.broker() || !f.isFrom(w, req) {
		return false
	}
	if f.group != "" && !slices.Contains(groupsOf(req), f.group) {
		return false
	}
	if f.topic == "" && f.partitions == nil {
		return true
	}
	all, parts := f.broker.tap.partsOf(req)
	return all || slices.ContainsFunc(parts, func(p part) bool {
		return (f.topic == "" || p.topic == f.topic) && (f.partitions == nil || slices.Contains(f.partitions, p.partition))
	})
}

// isFrom tells whether a request that came by the connection is from the fault's member.
func (f *Fault) isFrom(w *wire, req kmsg.Request) bool {
	return f.member == "" || w.clientID() == f.member || slices.Contains(membersOf(req), f.member) ||
		f.broker.tap.isMember(w, f.member)
}

// tagRequest writes a request anew with a tag that says which connection it came by, which kfake does not say.
func (w *wire) tagRequest(h header, req kmsg.Request) []byte {
	if tags := tagsOf(req); tags != nil {
		tags.Set(tagNumber, binary.BigEndian.AppendUint32(nil, w.tap.tagOf(w)))
	}
	return w.encode(h, req)
}

// senderOf returns the connection that a request came by, if it has a tag.
func (t *tap) senderOf(req kmsg.Request) *wire {
	tags := tagsOf(req)
	if tags == nil {
		return nil
	}
	var sender *wire
	tags.Each(func(number uint32, value []byte) {
		if number == tagNumber && len(value) == 4 {
			sender = t.wireOf(binary.BigEndian.Uint32(value))
		}
	})
	return sender
}

// tagsOf returns the tags at the end of a request.
func tagsOf(req kmsg.Request) *kmsg.Tags {
	field := reflect.ValueOf(req).Elem().FieldByName("UnknownTags")
	if !field.IsValid() {
		return nil
	}
	tags, _ := field.Addr().Interface().(*kmsg.Tags)
	return tags
}

func groupsOf(req kmsg.Request) []string {
	switch req := req.(type) {
	case *kmsg.OffsetCommitRequest:
		return []string{req.Group}
	case *kmsg.OffsetFetchRequest:
		groups := []string{req.Group}
		for _, g := range req.Groups {
			groups = append(groups, g.Group)
		}
		return groups
	case *kmsg.TxnOffsetCommitRequest:
		return []string{req.Group}
	case *kmsg.AddOffsetsToTxnRequest:
		return []string{req.Group}
	case *kmsg.FindCoordinatorRequest:
		if req.CoordinatorType != 0 {
			return nil // of transactions
		}
		return append(slices.Clone(req.CoordinatorKeys), req.CoordinatorKey)
	case *kmsg.JoinGroupRequest:
		return []string{req.Group}
	case *kmsg.SyncGroupRequest:
		return []string{req.Group}
	case *kmsg.HeartbeatRequest:
		return []string{req.Group}
	case *kmsg.LeaveGroupRequest:
		return []string{req.Group}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return []string{req.Group}
	}
	return nil
}

func membersOf(req kmsg.Request) []string {
	switch req := req.(type) {
	case *kmsg.OffsetCommitRequest:
		return []string{req.MemberID}
	case *kmsg.OffsetFetchRequest:
		var members []string
		for _, g := range req.Groups {
			if g.MemberID != nil {
				members = append(members, *g.MemberID)
			}
		}
		return members
	case *kmsg.TxnOffsetCommitRequest:
		return []string{req.MemberID}
	case *kmsg.JoinGroupRequest:
		return []string{req.MemberID}
	case *kmsg.SyncGroupRequest:
		return []string{req.MemberID}
	case *kmsg.HeartbeatRequest:
		return []string{req.MemberID}
	case *kmsg.LeaveGroupRequest:
		members := []string{req.MemberID}
		for _, m := range req.Members {
			members = append(members, m.MemberID)
		}
		return members
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return []string{req.MemberID}
	}
	return nil
}

// part is something in a request that is for one partition, or, with partition -1, for all of a topic.
type part struct {
	topic     string
	partition int32
}

// partsOf returns what a request is for; all means every topic there is.
func (t *tap) partsOf(req kmsg.Request) (all bool, parts []part) {
	add := func(topic string, id [16]byte, partitions ...int32) {
		if topic == "" {
			topic = t.topicName(id)
		}
		for _, p := range partitions {
			parts = append(parts, part{topic, p})
		}
	}
	var noID [16]byte
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, rt.TopicID, p.Partition)
			}
		}
	case *kmsg.FetchRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, rt.TopicID, p.Partition)
			}
		}
	case *kmsg.ListOffsetsRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, noID, p.Partition)
			}
		}
	case *kmsg.OffsetForLeaderEpochRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, noID, p.Partition)
			}
		}
	case *kmsg.OffsetCommitRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, rt.TopicID, p.Partition)
			}
		}
	case *kmsg.TxnOffsetCommitRequest:
		for _, rt := range req.Topics {
			for _, p := range rt.Partitions {
				add(rt.Topic, noID, p.Partition)
			}
		}
	case *kmsg.AddPartitionsToTxnRequest:
		for _, rt := range req.Topics {
			add(rt.Topic, noID, rt.Partitions...)
		}
		for _, txn := range req.Transactions {
			for _, rt := range txn.Topics {
				add(rt.Topic, noID, rt.Partitions...)
			}
		}
	case *kmsg.OffsetFetchRequest:
		all = len(req.Groups) == 0 && req.Topics == nil
		for _, rt := range req.Topics {
			add(rt.Topic, noID, rt.Partitions...)
		}
		for _, g := range req.Groups {
			all = all || g.Topics == nil
			for _, rt := range g.Topics {
				add(rt.Topic, rt.TopicID, rt.Partitions...)
			}
		}
	case *kmsg.MetadataRequest:
		all = req.Topics == nil
		for _, rt := range req.Topics {
			name := ""
			if rt.Topic != nil {
				name = *rt.Topic
			}
			add(name, rt.TopicID, -1)
		}
	}
	return all, parts
}
