package scenarios

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// env is a Kafka, as far as the scenarios need one. It is for one test.
type env interface {
	createTopic(t *testing.T, partitions int) string
	newGroup(t *testing.T) string
	addPartitions(t *testing.T, topic string, total int)
	deleteRecords(t *testing.T, topic string, partition int32, before int64)
	// forget makes a group without members forget its offsets.
	forget(t *testing.T, group string)
	// commit sets the offset of a group without members.
	commit(t *testing.T, group, topic string, partition int32, offset int64)

	produce(t *testing.T, records ...*kgo.Record)
	begin(t *testing.T) transaction

	committed(t *testing.T, group, topic string) map[int32]int64
	ends(t *testing.T, topic string) map[int32]int64
	describe(t *testing.T, group string) groupView
	kick(t *testing.T, group, clientID string)

	newHost() host
	join(t *testing.T, group, topic string, opts ...kgo.Opt) rival

	timing() timing
	// broker is nil on the real Kafka.
	broker() *memkafka.Broker
}

// timing is what differs where time is real.
type timing struct {
	session time.Duration // of all members
	still   time.Duration // long enough for what is not to happen
	limit   time.Duration // for what is to happen
	look    time.Duration // between two looks
	// What members need for that.
	kgo       []kgo.Opt
	consumer  []arroyo.ConsumerOption
	processor []arroyo.ProcessorOption
}

// host is where a client runs.
type host interface {
	ClientOptions() []kgo.Opt
	Cut()       // its connections are reset, dials refused
	BlackHole() // nothing gets through, and nobody is told
	Heal()
}

// rival is a plain kgo consumer that never commits.
type rival interface {
	Assigned() []int32
	Leave()
	Die() // without leaving
}

type transaction interface {
	Produce(topic string, values ...string)
	Commit()
	Abort()
}

// groupView is how the brokers see a group.
type groupView struct {
	stable  bool
	members []memberView
}

type memberView struct {
	clientID   string
	partitions []int32 // of the only topic
}

func (v groupView) assigned() (n int) {
	for _, m := range v.members {
		n += len(m.partitions)
	}
	return n
}
