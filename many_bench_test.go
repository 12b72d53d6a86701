package arroyo

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// manyPartitions is a run that holds n partitions, each with its lane; nobody
// runs its loop.
type manyPartitions struct {
	*run
	states []*epochState
}

// ackStep acks what it gets.
type ackStep struct{}

func (ackStep) Submit(_ context.Context, msgs []Message[*kgo.Record]) error { AckAll(msgs); return nil }
func (ackStep) Flush(context.Context) error                                 { return nil }
func (ackStep) Close(context.Context) error                                 { return nil }

func newManyPartitions(tb testing.TB, n int) *manyPartitions {
	c, err := NewConsumer("g", []string{"t"}, ClientOptions(kgo.SeedBrokers("127.0.0.1:1")))
	if err != nil {
		tb.Fatal(err)
	}
	p, err := NewPartitionedProcessor(c, func(context.Context, Epoch) (Strategy[*kgo.Record], error) {
		return ackStep{}, nil
	}, Logger(slog.New(slog.DiscardHandler)), CommitInterval(time.Hour))
	if err != nil {
		tb.Fatal(err)
	}
	m := &manyPartitions{run: newRun(p)}
	m.alarm = time.AfterFunc(time.Hour, func() {})
	m.commitAt, m.stallAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	c.mu.Lock()
	for i := range n {
		m.states = append(m.states, c.openEpoch(Partition{"t", int32(i)}))
	}
	c.mu.Unlock()
	return m
}

func (m *manyPartitions) end() {
	m.alarm.Stop()
	m.abandonLanes()
	for l := range m.lanes {
		<-l.done
	}
	m.consumer.Close()
}

func (m *manyPartitions) assign() {
	m.assigned(&Assigned{Epochs: epochsOf(m.states), states: m.states})
}

// fetch hands a record of every partition to its lane.
func (m *manyPartitions) fetch(offset int64) {
	for _, s := range m.states {
		records := []*kgo.Record{{Offset: offset}}
		m.fetched(&Fetched{Epoch: s.Epoch, Records: records, End: offset + 1, state: s, next: position{offset + 1, -1}}, time.Now())
	}
	for m.tracker.inFlight.Load() > 0 {
		time.Sleep(100 * time.Microsecond)
	}
}

// What the run loop does about all partitions is linear in their number, and
// what it does in each turn does not depend on it.
func BenchmarkManyPartitions(b *testing.B) {
	for _, n := range []int{1, 100, 1000, 10_000} {
		perPartition := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/partition")
		}
		b.Run(fmt.Sprintf("Assign/%d", n), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				m := newManyPartitions(b, n)
				b.StartTimer()
				m.assign()
				b.StopTimer()
				m.end()
				b.StartTimer()
			}
			perPartition(b)
		})
		b.Run(fmt.Sprintf("Status/%d", n), func(b *testing.B) {
			m := newManyPartitions(b, n)
			defer m.end()
			m.assign()
			for b.Loop() {
				m.status()
			}
			perPartition(b)
		})
		b.Run(fmt.Sprintf("Commit/%d", n), func(b *testing.B) {
			m := newManyPartitions(b, n)
			defer m.end()
			m.assign()
			all := make([]*progress, 0, n)
			for _, p := range m.progress {
				all = append(all, p)
			}
			for i := range b.N {
				b.StopTimer()
				m.fetch(int64(i))
				b.StartTimer()
				offsets := m.toCommit(all, time.Now())
				if len(offsets) != n {
					b.Fatalf("%d offsets to commit, want %d", len(offsets), n)
				}
				m.committed(offsets, nil)
			}
			perPartition(b)
		})
		b.Run(fmt.Sprintf("Turn/%d", n), func(b *testing.B) {
			m := newManyPartitions(b, n)
			defer m.end()
			m.assign()
			for b.Loop() {
				m.step(context.Background())
			}
		})
		b.Run(fmt.Sprintf("TurnAllFull/%d", n), func(b *testing.B) {
			m := newManyPartitions(b, n)
			defer m.end()
			m.config.partition.records = 1
			m.assign()
			// Three records of each partition that no step gets.
			spans := make([][]span, n)
			fill := func(i, records int) {
				for range records {
					p := m.progress[m.states[i].Epoch]
					spans[i] = append(spans[i], p.append([]*kgo.Record{{}}, position{1, -1}, time.Now())...)
					m.checkFull(p, time.Now())
				}
			}
			for i := range m.states {
				fill(i, 3)
			}
			for m.step(context.Background()); len(m.full.paused) < n; m.step(context.Background()) {
				time.Sleep(time.Millisecond)
			}
			for i := 0; b.Loop(); i = (i + 1) % n {
				spans[i][0].ack(1)
				spans[i] = spans[i][1:]
				m.step(context.Background())
				fill(i, 1)
			}
			if len(m.full.paused) != n {
				b.Fatalf("%d partitions are paused, want all", len(m.full.paused))
			}
		})
	}
}
