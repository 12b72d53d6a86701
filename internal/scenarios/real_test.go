package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/realkafka"
	"github.com/arroyo-go/arroyo/memkafka"
)

// realSession is the session timeout of all members on the real Kafka.
const realSession = 6 * time.Second

// genuine is the real Kafka.
type genuine struct {
	kafka  *realkafka.Kafka
	client *kgo.Client
	admin  *kadm.Client
	kip848 bool
}

func newGenuine(t *testing.T, kafka *realkafka.Kafka, protocol string) *genuine {
	t.Helper()
	g := &genuine{kafka: kafka, kip848: protocol == "kip848"}
	g.client = g.open(t)
	g.admin = kadm.NewClient(g.client)
	return g
}

// open opens a client that produces where records say.
func (g *genuine) open(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(slices.Concat(g.kafka.ClientOptions(), []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(50 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), time.Minute)
}

func (g *genuine) createTopic(t *testing.T, partitions int) string {
	return g.kafka.Topic(t, partitions)
}
func (g *genuine) newGroup(t *testing.T) string { return g.kafka.Group(t) }

func (g *genuine) addPartitions(t *testing.T, topic string, total int) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	responses, err := g.admin.UpdatePartitions(ctx, total, topic)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	for len(g.ends(t, topic)) != total {
		if ctx.Err() != nil {
			t.Fatalf("the topic has no %d partitions", total)
		}
		time.Sleep(50 * time.Millisecond)
	}
	g.client = g.open(t) // knows them at once
}

func (g *genuine) deleteRecords(t *testing.T, topic string, partition int32, before int64) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: before})
	responses, err := g.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = responses.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (g *genuine) forget(t *testing.T, group string) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	if _, err := g.admin.DeleteGroup(ctx, group); err != nil {
		t.Fatal(err)
	}
}

func (g *genuine) commit(t *testing.T, group, topic string, partition int32, offset int64) {
	commit(t, g.kafka.ClientOptions(), group, topic, partition, offset)
}

func (g *genuine) produce(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	if err := g.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (g *genuine) committed(t *testing.T, group, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	responses, err := g.admin.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	offsets := make(map[int32]int64)
	responses.Each(func(r kadm.OffsetResponse) {
		if r.Topic == topic && r.At >= 0 {
			offsets[r.Partition] = r.At
		}
	})
	return offsets
}

func (g *genuine) ends(t *testing.T, topic string) map[int32]int64 {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	listed, err := g.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

func (g *genuine) describe(t *testing.T, group string) groupView {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	if g.kip848 {
		groups, err := g.admin.DescribeConsumerGroups(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		described := groups[group]
		view := groupView{stable: described.State == "Stable" || len(described.Members) == 0}
		for _, m := range described.Members {
			v := memberView{clientID: m.ClientID}
			for _, partitions := range m.Assignment {
				for p := range partitions {
					v.partitions = append(v.partitions, p)
				}
			}
			slices.Sort(v.partitions)
			view.members = append(view.members, v)
		}
		return view
	}
	groups, err := g.admin.DescribeGroups(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	described := groups[group]
	view := groupView{stable: described.State == "Stable" || len(described.Members) == 0}
	for _, m := range described.Members {
		v := memberView{clientID: m.ClientID}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				v.partitions = append(v.partitions, topic.Partitions...)
			}
		}
		slices.Sort(v.partitions)
		view.members = append(view.members, v)
	}
	return view
}

func (g *genuine) kick(t *testing.T, group, clientID string) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	groups, err := g.admin.DescribeGroups(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range groups[group].Members {
		if m.ClientID != clientID {
			continue
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = group
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
		if _, err := req.RequestWith(ctx, g.client); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("the group has no member %s", clientID)
}

func (g *genuine) newHost() host            { return &realHost{brokers: g.kafka.Brokers()} }
func (g *genuine) broker() *memkafka.Broker { return nil }

func (g *genuine) timing() timing {
	return timing{
		session: realSession,
		still:   time.Second,
		limit:   45 * time.Second,
		look:    30 * time.Millisecond,
		kgo: []kgo.Opt{
			kgo.SessionTimeout(realSession),
			kgo.HeartbeatInterval(300 * time.Millisecond),
		},
		consumer:  []arroyo.ConsumerOption{arroyo.GroupSessionTimeout(realSession)},
		processor: []arroyo.ProcessorOption{arroyo.CommitInterval(100 * time.Millisecond)},
	}
}

// realTransaction is a transaction of a kgo producer of its own.
type realTransaction struct {
	t      *testing.T
	g      *genuine
	topic  string
	client *kgo.Client
}

func (g *genuine) begin(t *testing.T) transaction {
	t.Helper()
	client := g.open(t, kgo.TransactionalID(g.kafka.Group(t)))
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	return &realTransaction{t: t, g: g, client: client}
}

// Produce appends to partition 0, as memkafka does with the first value of a
// topic: transactions are for topics of one partition here.
func (x *realTransaction) Produce(topic string, values ...string) {
	x.t.Helper()
	x.topic = topic
	ctx, cancel := bounded(x.t)
	defer cancel()
	for _, v := range values {
		if err := x.client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *realTransaction) end(how kgo.TransactionEndTry) {
	x.t.Helper()
	ctx, cancel := bounded(x.t)
	defer cancel()
	if err := x.client.EndTransaction(ctx, how); err != nil {
		x.t.Fatal(err)
	}
	// Kafka answers before the markers are written; kfake after.
	for {
		stable, err := x.g.admin.ListCommittedOffsets(ctx, x.topic)
		if err != nil {
			x.t.Fatal(err)
		}
		if at, ok := stable.Lookup(x.topic, 0); ok && at.Err == nil && at.Offset == x.g.ends(x.t, x.topic)[0] {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (x *realTransaction) Commit() { x.end(kgo.TryCommit) }
func (x *realTransaction) Abort()  { x.end(kgo.TryAbort) }

// realRival is a plain kgo consumer on a host of its own.
type realRival struct {
	t      *testing.T
	g      *genuine
	host   host
	group  string
	id     string
	cancel context.CancelFunc
	client *kgo.Client
	done   chan struct{}
}

func (g *genuine) join(t *testing.T, group, topic string, opts ...kgo.Opt) rival {
	t.Helper()
	r := &realRival{t: t, g: g, host: g.newHost(), group: group, done: make(chan struct{})}
	r.id = "rival-" + strings.ToLower(time.Now().Format("150405.000000000"))
	ctx, cancel := context.WithCancel(context.Background())
	client, err := kgo.NewClient(slices.Concat(r.host.ClientOptions(), g.timing().kgo, []kgo.Opt{
		kgo.ClientID(r.id),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.WithContext(ctx),
	}, opts)...)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	r.client, r.cancel = client, cancel
	go func() {
		defer close(r.done)
		for !client.PollFetches(ctx).IsClientClosed() && ctx.Err() == nil {
		}
	}()
	t.Cleanup(r.Die)
	return r
}

func (r *realRival) Assigned() []int32 {
	for _, m := range r.g.describe(r.t, r.group).members {
		if m.clientID == r.id {
			return m.partitions
		}
	}
	return nil
}

func (r *realRival) Leave() {
	r.client.Close()
	r.cancel()
	<-r.done
}

func (r *realRival) Die() {
	r.host.Cut()
	r.cancel()
	r.client.Close()
	<-r.done
}
