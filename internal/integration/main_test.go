package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/realkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(realkafka.Main(m))
}

// protocols are the ways in which a group can rebalance.
var protocols = map[string][]kgo.Opt{
	"cooperative": nil,
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"kip848":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

type record struct {
	partition int32
	offset    int64
}

// ledger is who processed which record.
type ledger struct {
	mu   sync.Mutex
	seen map[record][]string
}

func newLedger() *ledger { return &ledger{seen: make(map[record][]string)} }

func (l *ledger) add(by string, r record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[r] = append(l.seen[r], by)
}

func (l *ledger) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.seen)
}

func (l *ledger) by(name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, names := range l.seen {
		for _, by := range names {
			if by == name {
				n++
				break
			}
		}
	}
	return n
}

// cluster is a topic and a group on the real Kafka.
type cluster struct {
	kafka        *realkafka.Kafka
	topic, group string
	partitions   int
	client       *kgo.Client
}

func newCluster(t *testing.T, partitions int) *cluster {
	t.Helper()
	kafka := realkafka.Start(t)
	client, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &cluster{kafka, kafka.Topic(t, partitions), kafka.Group(t), partitions, client}
}

// produce appends n records, round robin over the partitions.
func (c *cluster) produce(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		r := &kgo.Record{Topic: c.topic, Partition: int32(i % c.partitions), Value: fmt.Append(nil, i)}
		c.client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := c.client.Flush(t.Context()); err != nil {
		t.Errorf("produce: %v", err) // perhaps on a goroutine of its own
	}
}

// committed returns the group's committed offsets.
func (c *cluster) committed(t *testing.T) map[int32]int64 {
	t.Helper()
	offsets, err := kadm.NewClient(c.client).FetchOffsets(t.Context(), c.group)
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[int32]int64)
	offsets.Each(func(o kadm.OffsetResponse) {
		if o.Topic == c.topic {
			m[o.Partition] = o.At
		}
	})
	return m
}

func sum(m map[int32]int64) (n int64) {
	for _, x := range m {
		n += x
	}
	return n
}

// eventually polls a condition of the real world.
func eventually(t *testing.T, what string, within time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *cluster) members(t *testing.T) int {
	t.Helper()
	groups, err := kadm.NewClient(c.client).DescribeGroups(t.Context(), c.group)
	if err != nil {
		t.Fatal(err)
	}
	g := groups[c.group]
	if len(g.Members) == 0 {
		consumers, err := kadm.NewClient(c.client).DescribeConsumerGroups(t.Context(), c.group)
		if err != nil {
			return 0
		}
		return len(consumers[c.group].Members)
	}
	return len(g.Members)
}

// member is a processor that runs in this process.
type member struct {
	cancel context.CancelFunc
	err    chan error
}

func newProcessor(brokers []string, group, topic string, f func(record), opts []kgo.Opt, popts ...arroyo.ProcessorOption) (*arroyo.Processor, error) {
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(kgo.SeedBrokers(brokers...)), arroyo.ClientOptions(opts...))
	if err != nil {
		return nil, err
	}
	pipeline := strategies.ForEachBatch(500, 100*time.Millisecond, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		for _, row := range rows {
			f(record{row.Payload.Partition, row.Payload.Offset})
		}
		return nil
	})
	return arroyo.NewProcessor(consumer, pipeline, append([]arroyo.ProcessorOption{
		arroyo.CommitInterval(200 * time.Millisecond), arroyo.Logger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, popts...)...)
}

func (c *cluster) start(t *testing.T, name string, l *ledger, pause time.Duration, opts []kgo.Opt) *member {
	t.Helper()
	processor, err := newProcessor(c.kafka.Brokers(), c.group, c.topic, func(r record) {
		time.Sleep(pause)
		l.add(name, r)
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{cancel, make(chan error, 1)}
	go func() { m.err <- processor.Run(ctx) }()
	return m
}

// stop shuts the member down and expects a clean drain.
func (m *member) stop(t *testing.T) {
	t.Helper()
	began := time.Now()
	m.cancel()
	if err := <-m.err; err != nil {
		t.Errorf("Run: %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a clean drain took %v", took)
	}
}
