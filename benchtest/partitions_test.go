package benchtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// BenchmarkPartitions reads the same number of records from few and from many
// partitions: with a bare kgo loop, with one pipeline for all partitions, and
// with one for each. CatchUp reads what is there, in batches of the same size,
// joining included; Steady what comes at a rate, without.
func BenchmarkPartitions(b *testing.B) {
	for _, kind := range []struct {
		name   string
		layout layout
	}{
		{"CatchUp", layout{records: 2_000_000, batch: 200}},
		{"Steady", layout{records: 500_000, batch: 1, rate: 50_000}},
	} {
		for _, kind.layout.partitions = range []int{1, 100, 1000, 10_000} {
			b.Run(fmt.Sprintf("%s/%d", kind.name, kind.layout.partitions), func(b *testing.B) {
				comparePartitions(b, kind.layout)
			})
		}
	}
}

func comparePartitions(b *testing.B, l layout) {
	rounds := 3
	readers := []struct {
		name string
		r    reader
	}{
		{"bare", readBare},
		{"shared", readArroyo(forEach)},
		{"partitioned", readPartitioned},
	}
	var s source
	if l.rate == 0 {
		s = startBroker(b, l)
	}
	used := make(map[string][]usage)
	for op := 0; b.Loop(); op++ {
		for round := range rounds {
			for _, who := range readers {
				if l.rate > 0 {
					s = startBroker(b, l)
				}
				group := fmt.Sprintf("%s-%d-%d", who.name, op, round)
				used[who.name] = append(used[who.name], readLabelled(b, s, group, who.name, round, who.r))
			}
		}
	}
	c := comparison{records: float64(l.records)}
	for _, who := range readers {
		b.ReportMetric(c.perRecord(used[who.name], cpu), who.name+"-cpu-ns/record")
		b.ReportMetric(c.perRecord(used[who.name], allocs), who.name+"-allocs/record")
	}
	b.ReportMetric(0, "ns/op") // an op is all rounds
}

// readPartitioned is a reader that is a Processor with three steps for each
// partition.
func readPartitioned(ctx context.Context, s source, group string) (t tally, used usage, err error) {
	meter := startMeter(s)
	complete := make(chan struct{})
	var sum partitionSums
	build := func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
		return strategies.RunTask(decode,
			strategies.Filter(func(m arroyo.Message[uint64]) bool { return wanted(m.Payload) },
				strategies.ForEach(func(_ context.Context, m arroyo.Message[uint64]) error {
					switch sum.add(m.Payload) {
					case 1:
						meter.first()
					case int64(s.records):
						close(complete)
					}
					return nil
				}))), nil
	}
	consumer, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(s.options()...))
	if err != nil {
		return t, used, err
	}
	processor, err := arroyo.NewPartitionedProcessor(consumer, build, silent)
	if err != nil {
		return t, used, errors.Join(err, consumer.Close())
	}
	used, err = runUntil(ctx, processor, complete, meter)
	return sum.total(), used, err
}

// partitionSums adds up what the pipelines of all partitions count.
type partitionSums struct{ records, sum atomic.Int64 }

func (p *partitionSums) add(v uint64) (records int64) {
	p.sum.Add(int64(v))
	return p.records.Add(1)
}

func (p *partitionSums) total() tally {
	return tally{int(p.records.Load()), uint64(p.sum.Load())}
}
