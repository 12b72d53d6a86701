package memkafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FaultOption narrows a [Fault] down. A request has to meet all of a fault's options. Each may be given once; make
// several faults to say "or".
type FaultOption func(*Fault) error

// OnTopic selects requests for the topic, and of those the part that is for it. It need not exist. It works with Produce,
// Fetch, ListOffsets, Metadata, OffsetCommit, OffsetFetch, TxnOffsetCommit, OffsetForLeaderEpoch and AddPartitionsToTxn.
// Requests for all topics are for each.
func OnTopic(name string) FaultOption {
	return func(f *Fault) error {
		switch {
		case name == "":
			return errors.New("option OnTopic: which topic?")
		case f.topic != "":
			return errors.New("option OnTopic is given twice: make two faults")
		case !carries[f.kind].topics:
			return f.cannot("OnTopic", "topics", func(c carried) bool { return c.topics })
		}
		f.topic = name
		return nil
	}
}

// OnPartitions selects requests for one of the partitions, of whatever topic OnTopic says or any, and of those the part
// that is for them. It works with the kinds that OnTopic works with, except for Metadata.
func OnPartitions(n ...int32) FaultOption {
	return func(f *Fault) error {
		switch {
		case len(n) == 0:
			return errors.New("option OnPartitions: which partitions?")
		case slices.Min(n) < 0:
			return fmt.Errorf("option OnPartitions: there is no partition %d", slices.Min(n))
		case f.partitions != nil:
			return errors.New("option OnPartitions is given twice: give all partitions at once")
		case !carries[f.kind].partitions:
			return f.cannot("OnPartitions", "partitions", func(c carried) bool { return c.partitions })
		}
		f.partitions = slices.Clone(n)
		return nil
	}
}

// OfGroup selects requests for the group. It works with OffsetCommit, OffsetFetch, TxnOffsetCommit, AddOffsetsToTxn,
// FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat.
func OfGroup(name string) FaultOption {
	return func(f *Fault) error {
		switch {
		case name == "":
			return errors.New("option OfGroup: which group?")
		case f.group != "":
			return errors.New("option OfGroup is given twice: make two faults")
		case !carries[f.kind].groups:
			return f.cannot("OfGroup", "groups", func(c carried) bool { return c.groups })
		}
		f.group = name
		return nil
	}
}

// OfMember selects requests of the client with that client ID or group member ID. It works with all kinds: that a member
// fetches is known, too. A client that speaks a version of the protocol from before tagged fields, which no kgo client
// does unless it is told to, is only known to [Broker.Fail] by a member ID in its requests.
func OfMember(id string) FaultOption {
	return func(f *Fault) error {
		switch {
		case id == "":
			return errors.New("option OfMember: which member?")
		case f.member != "":
			return errors.New("option OfMember is given twice: make two faults")
		}
		f.member = id
		return nil
	}
}

// OnBroker selects requests to the broker with that number, of which the first is 0.
func OnBroker(n int) FaultOption {
	return func(f *Fault) error {
		switch {
		case n < 0 || n >= f.broker.brokers:
			return fmt.Errorf("option OnBroker: there is no broker %d, only 0 to %d", n, f.broker.brokers-1)
		case f.node >= 0:
			return errors.New("option OnBroker is given twice: make two faults")
		}
		f.node = int32(n)
		return nil
	}
}

// Times ends the fault after n requests, at least 1. Defaults to no end.
func Times(n int) FaultOption {
	return func(f *Fault) error {
		if n < 1 {
			return fmt.Errorf("option Times: %d times: give at least 1, or leave it out for no end", n)
		}
		f.times = n
		return nil
	}
}

// Applied lets the broker do what the request asks, and go on with what comes after it by the same connection, so that
// only the answer is late ([Broker.Delay]), lost with the connection ([Broker.Disconnect]) or just lost
// ([Broker.Swallow]): the client can't know what has happened. It does not work with [Broker.Fail], which has
// kerr.RequestTimedOut for that.
func Applied() FaultOption {
	return func(f *Fault) error {
		if f.what == failing {
			return errors.New("option Applied: a request that fails is not applied: use kerr.RequestTimedOut, or Disconnect")
		}
		f.applied = true
		return nil
	}
}

// cannot says which kinds an option is for.
func (f *Fault) cannot(option, what string, can func(carried) bool) error {
	var kinds []string
	for kind, c := range carries {
		if can(c) {
			kinds = append(kinds, kind.Name())
		}
	}
	slices.Sort(kinds)
	return fmt.Errorf("option %s: %s requests name no %s: it works with %s",
		option, kindName(int16(f.kind)), what, strings.Join(kinds, ", "))
}

// options says which options the fault has.
func (f *Fault) options() string {
	var text strings.Builder
	if f.topic != "" {
		fmt.Fprintf(&text, ", OnTopic(%q)", f.topic)
	}
	if f.partitions != nil {
		ps := fmt.Sprint(f.partitions)
		fmt.Fprintf(&text, ", OnPartitions(%s)", strings.ReplaceAll(ps[1:len(ps)-1], " ", ", "))
	}
	if f.group != "" {
		fmt.Fprintf(&text, ", OfGroup(%q)", f.group)
	}
	if f.member != "" {
		fmt.Fprintf(&text, ", OfMember(%q)", f.member)
	}
	if f.node >= 0 {
		fmt.Fprintf(&text, ", OnBroker(%d)", f.node)
	}
	if f.times > 0 {
		fmt.Fprintf(&text, ", Times(%d)", f.times)
	}
	if f.applied {
		text.WriteString(", Applied()")
	}
	return text.String()
}

// carried is what requests of a kind name.
type carried struct{ topics, partitions, groups bool }

var carries = map[kmsg.Key]carried{
	kmsg.Produce:                {topics: true, partitions: true},
	kmsg.Fetch:                  {topics: true, partitions: true},
	kmsg.ListOffsets:            {topics: true, partitions: true},
	kmsg.Metadata:               {topics: true},
	kmsg.OffsetForLeaderEpoch:   {topics: true, partitions: true},
	kmsg.AddPartitionsToTxn:     {topics: true, partitions: true},
	kmsg.OffsetCommit:           {topics: true, partitions: true, groups: true},
	kmsg.OffsetFetch:            {topics: true, partitions: true, groups: true},
	kmsg.TxnOffsetCommit:        {topics: true, partitions: true, groups: true},
	kmsg.AddOffsetsToTxn:        {groups: true},
	kmsg.FindCoordinator:        {groups: true},
	kmsg.JoinGroup:              {groups: true},
	kmsg.SyncGroup:              {groups: true},
	kmsg.Heartbeat:              {groups: true},
	kmsg.LeaveGroup:             {groups: true},
	kmsg.ConsumerGroupHeartbeat: {groups: true},
}
