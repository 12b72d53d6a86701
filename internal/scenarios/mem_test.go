package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// mem is memkafka, in a bubble.
type mem struct {
	*memkafka.Broker
	names int
}

func newMem(t *testing.T) *mem {
	return &mem{Broker: memkafka.New(t, memkafka.Brokers(2))}
}

func (m *mem) name(kind string) string {
	m.names++
	return fmt.Sprint(kind, m.names)
}

func (m *mem) createTopic(_ *testing.T, partitions int) string {
	name := m.name("topic")
	m.CreateTopic(name, partitions)
	return name
}

func (m *mem) newGroup(*testing.T) string { return m.name("group") }

func (m *mem) addPartitions(_ *testing.T, topic string, total int) { m.AddPartitions(topic, total) }

func (m *mem) deleteRecords(_ *testing.T, topic string, partition int32, before int64) {
	m.ExpireRecords(topic, partition, before)
}

func (m *mem) forget(_ *testing.T, group string) { m.ExpireOffsets(group) }

func (m *mem) commit(t *testing.T, group, topic string, partition int32, offset int64) {
	commit(t, m.ClientOptions(), group, topic, partition, offset)
}

func (m *mem) produce(_ *testing.T, records ...*kgo.Record) { m.ProduceRecords(records...) }
func (m *mem) begin(*testing.T) transaction                 { return m.BeginTransaction() }

func (m *mem) committed(_ *testing.T, group, topic string) map[int32]int64 {
	return m.Committed(group, topic)
}

func (m *mem) ends(_ *testing.T, topic string) map[int32]int64 { return m.End(topic) }

func (m *mem) describe(_ *testing.T, group string) groupView {
	info := m.Group(group)
	view := groupView{stable: info.State == "Stable" || info.State == "Empty"}
	for _, member := range info.Members {
		v := memberView{clientID: member.ClientID}
		for _, partitions := range member.Assigned {
			v.partitions = append(v.partitions, partitions...)
		}
		view.members = append(view.members, v)
	}
	return view
}

func (m *mem) kick(_ *testing.T, group, clientID string) { m.Kick(group, clientID) }
func (m *mem) newHost() host                             { return m.Host() }
func (m *mem) broker() *memkafka.Broker                  { return m.Broker }

func (m *mem) join(_ *testing.T, group, topic string, opts ...kgo.Opt) rival {
	return m.Join(group, topic, opts...)
}

// All settings are the defaults of kgo, Kafka and Arroyo.
func (m *mem) timing() timing {
	return timing{
		session: 45 * time.Second,
		still:   30 * time.Second,
		limit:   5 * time.Minute,
		look:    50 * time.Millisecond,
	}
}

func commit(t *testing.T, opts []kgo.Opt, group, topic string, partition int32, offset int64) {
	t.Helper()
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
	if err := kadm.NewClient(client).CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
}
