package arroyo_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/hookorder"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	group = "ingest"
	topic = "events"
)

// protocols are the three ways in which a group can rebalance.
var protocols = []struct {
	name string
	opts []kgo.Opt
}{
	{"cooperative", nil},
	{"eager", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
	{"kip848", []kgo.Opt{kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()}},
}

// underEveryProtocol runs a test in a bubble under each protocol.
func underEveryProtocol(t *testing.T, test func(t *testing.T, opts []kgo.Opt)) {
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, p.opts) })
		})
	}
}

// pipelineFunc makes a pipeline: one for all partitions, or one for each.
type pipelineFunc func() arroyo.Strategy[*kgo.Record]

// starter starts a processor of one of the two kinds.
type starter func(t *testing.T, broker *memkafka.Broker, pipeline pipelineFunc, opts []kgo.Opt, popts ...arroyo.ProcessorOption) *member

// inEveryMode runs a test in a bubble under each protocol, with shared and with
// partitioned processors.
func inEveryMode(t *testing.T, test func(t *testing.T, opts []kgo.Opt, start starter)) {
	t.Run("shared", func(t *testing.T) {
		underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
			test(t, opts, func(t *testing.T, broker *memkafka.Broker, pipeline pipelineFunc, opts []kgo.Opt, popts ...arroyo.ProcessorOption) *member {
				t.Helper()
				return startMember(t, broker, pipeline(), opts, popts...)
			})
		})
	})
	t.Run("partitioned", func(t *testing.T) {
		underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
			test(t, opts, func(t *testing.T, broker *memkafka.Broker, pipeline pipelineFunc, opts []kgo.Opt, popts ...arroyo.ProcessorOption) *member {
				t.Helper()
				return startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] { return pipeline() }, opts, popts...)
			})
		})
	})
}

var quiet = arroyo.Logger(slog.New(slog.DiscardHandler))

// observed are the options of all members of tests.
func observed(t *testing.T) []arroyo.ProcessorOption {
	return []arroyo.ProcessorOption{quiet, arroyo.Hooks(hookorder.New(t.Errorf))}
}

// newConsumer makes a member of the group on the broker.
func newConsumer(t *testing.T, broker *memkafka.Broker, opts ...kgo.Opt) *arroyo.Consumer {
	t.Helper()
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(broker.ClientOptions()...), arroyo.ClientOptions(opts...))
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

// member is a processor that runs.
type member struct {
	*arroyo.Processor
	stop func() error
}

func startMember(t *testing.T, broker *memkafka.Broker, pipeline arroyo.Strategy[*kgo.Record], opts []kgo.Opt, popts ...arroyo.ProcessorOption) *member {
	t.Helper()
	processor, err := arroyo.NewProcessor(newConsumer(t, broker, opts...), pipeline, append(observed(t), popts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &member{processor, memkafka.Start(t, processor.Run)}
}

func startPartitioned(t *testing.T, broker *memkafka.Broker, pipeline func(arroyo.Epoch) arroyo.Strategy[*kgo.Record], opts []kgo.Opt, popts ...arroyo.ProcessorOption) *member {
	t.Helper()
	processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, opts...), func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
		return pipeline(e), nil
	}, append(observed(t), popts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return &member{processor, memkafka.Start(t, processor.Run)}
}

// shutDown stops the member and expects a clean drain.
func (m *member) shutDown(t *testing.T) {
	t.Helper()
	if err := m.stop(); err != nil {
		t.Fatalf("Run: %v", err)
	}
}

// seen is what user code saw of one record.
type seen struct {
	partition int32
	offset    int64
	by        string
	at        time.Time
}

// ledger collects what user code of all members saw.
type ledger struct {
	mu   sync.Mutex
	seen []seen
}

func (l *ledger) add(by string, r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, seen{r.Partition, r.Offset, by, time.Now()})
}

// by returns a pipeline that writes into the ledger as a member.
func (l *ledger) by(name string) arroyo.Strategy[*kgo.Record] {
	return l.slow(name, 0)
}

// pipeline is by, as a pipelineFunc.
func (l *ledger) pipeline(name string) pipelineFunc { return l.slowPipeline(name, 0) }

// slowPipeline is slow, as a pipelineFunc.
func (l *ledger) slowPipeline(name string, pause time.Duration) pipelineFunc {
	return func() arroyo.Strategy[*kgo.Record] { return l.slow(name, pause) }
}

// slow is by, with a pause for each record.
func (l *ledger) slow(name string, pause time.Duration) arroyo.Strategy[*kgo.Record] {
	return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
		if pause > 0 {
			time.Sleep(pause)
		}
		l.add(name, m.Payload)
		return nil
	})
}

func (l *ledger) all() []seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

// counts returns how often each record was seen.
func (l *ledger) counts() map[[2]int64]int {
	counts := make(map[[2]int64]int)
	for _, s := range l.all() {
		counts[[2]int64{int64(s.partition), s.offset}]++
	}
	return counts
}

// expectAll checks that each record of the topic was seen, and how many more
// than once.
func (l *ledger) expectAll(t *testing.T, broker *memkafka.Broker, duplicates int) {
	t.Helper()
	counts := l.counts()
	twice := 0
	for _, r := range broker.Records(topic) {
		n := counts[[2]int64{int64(r.Partition), r.Offset}]
		if n == 0 {
			t.Errorf("lost: partition %d offset %d", r.Partition, r.Offset)
		}
		twice += max(0, n-1)
	}
	if twice > duplicates {
		t.Errorf("%d records were processed more than once; want at most %d", twice, duplicates)
	}
}

// expectOrder checks that each member saw each partition's records in order,
// where a step back is allowed only by going on from a smaller offset.
func (l *ledger) expectOrder(t *testing.T) {
	t.Helper()
	type key struct {
		by        string
		partition int32
	}
	last := make(map[key]int64)
	for _, s := range l.all() {
		k := key{s.by, s.partition}
		if before, ok := last[k]; ok && s.offset <= before {
			t.Errorf("%s saw offset %d of partition %d after %d", s.by, s.offset, s.partition, before)
		}
		last[k] = s.offset
	}
}

// expectCommitted checks that the group has committed the whole topic.
func expectCommitted(t *testing.T, broker *memkafka.Broker) {
	t.Helper()
	ends := make(map[int32]int64)
	for _, r := range broker.Records(topic) {
		ends[r.Partition] = r.Offset + 1
	}
	for p, end := range ends {
		if got := broker.Committed(group, topic)[p]; got != end {
			t.Errorf("partition %d: committed %d, want its end %d", p, got, end)
		}
	}
}

// produce produces n numbered records, round robin.
func produce(broker *memkafka.Broker, n int) {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	broker.Produce(topic, values...)
}

// produceTo produces n records to one of two partitions, with the values that
// produce gives them.
func produceTo(broker *memkafka.Broker, partition int32, n int) {
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Append(nil, 2*i+int(partition))}
	}
	broker.ProduceRecords(records...)
}

// next polls for the next event, within a minute.
func next(t *testing.T, c *arroyo.Consumer) arroyo.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ev, err := c.Poll(ctx)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return ev
}

// expect polls for an event of a kind and fails if another one comes first.
func expect[E arroyo.Event](t *testing.T, c *arroyo.Consumer) E {
	t.Helper()
	ev := next(t, c)
	e, ok := ev.(E)
	if !ok {
		var want E
		t.Fatalf("got %T %+v, want %T", ev, ev, want)
	}
	return e
}

// numbers returns the partition numbers of epochs, sorted.
func numbers(epochs []arroyo.Epoch) []int32 {
	var ns []int32
	for _, e := range epochs {
		ns = append(ns, e.Number)
	}
	slices.SortFunc(ns, cmp.Compare)
	return ns
}

func saslPlain(user, password string) kgo.Opt {
	return kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism())
}
