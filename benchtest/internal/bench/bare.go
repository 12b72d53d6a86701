package bench

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Bare is the loop that one writes with kgo alone: at least once, with a commit
// each second.
func Bare(cost Cost) Reader { return Reader{"bare", bareLoop{cost: cost}.read} }

// Pooled is Bare with pools, from which records come and to which they go back.
func Pooled(cost Cost) Reader {
	return Reader{"pooled", bareLoop{cost: cost, recycle: true}.read}
}

type bareLoop struct {
	cost      Cost
	recycle   bool
	latencies *Latencies // nil: nobody wants to know
}

func (b bareLoop) options(s Source, group string) []kgo.Opt {
	opts := append(s.Options(),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(Topic),
		kgo.DisableAutoCommit(),
	)
	if b.recycle {
		opts = append(opts, kgo.WithPools(new(handPool)))
	}
	return opts
}

func (b bareLoop) read(ctx context.Context, s Source, group string) (t Tally, used Usage, err error) {
	meter := StartMeter(s)
	client, err := kgo.NewClient(b.options(s, group)...)
	if err != nil {
		return t, used, err
	}
	defer client.Close()
	for committed := time.Now(); t.Records < s.Records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return t, used, err
		}
		if t.Records == 0 && !fetches.Empty() {
			meter.First()
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				if v := binary.BigEndian.Uint64(r.Value); wanted(v) {
					if b.cost != None {
						b.cost.Do(v)
					}
					t.Add(v)
				}
				if b.latencies != nil {
					b.latencies.add(r.Value)
				}
				if b.recycle {
					r.Recycle()
				}
			}
		})
		if now := time.Now(); now.Sub(committed) >= time.Second {
			committed = now
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				return t, used, err
			}
		}
	}
	used = meter.Stop()
	return t, used, client.CommitUncommittedOffsets(ctx)
}

// wanted is what the filter of every reader keeps: all of the topic.
func wanted(v uint64) bool { return v < 1<<62 }

// handPool is the pool that one writes by hand.
type handPool struct{ records, bytes sync.Pool }

func (p *handPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.records.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return *s
	}
	return make([]kgo.Record, n)
}

func (p *handPool) PutRecords(s []kgo.Record) { p.records.Put(&s) }

func (p *handPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if s, ok := p.bytes.Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, 4*len(compressed))
}

func (p *handPool) PutDecompressBytes(s []byte) { p.bytes.Put(&s) }

// Goroutines is a bare loop that gives each record of a poll to one of n
// goroutines and waits for them.
func Goroutines(n int, cost Cost) Reader {
	return Reader{"goroutines", func(ctx context.Context, s Source, group string) (t Tally, used Usage, err error) {
		meter := StartMeter(s)
		client, err := kgo.NewClient(bareLoop{}.options(s, group)...)
		if err != nil {
			return t, used, err
		}
		defer client.Close()
		var count counter
		work := make(chan *kgo.Record, n)
		var busy, pool sync.WaitGroup
		for range n {
			pool.Go(func() {
				for r := range work {
					v := binary.BigEndian.Uint64(r.Value)
					cost.Do(v)
					count.add(v)
					busy.Done()
				}
			})
		}
		defer pool.Wait()
		defer close(work)
		for committed := time.Now(); count.tally().Records < s.Records; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return count.tally(), used, err
			}
			if count.tally().Records == 0 && !fetches.Empty() {
				meter.First()
			}
			fetches.EachRecord(func(r *kgo.Record) {
				busy.Add(1)
				work <- r
			})
			busy.Wait()
			if now := time.Now(); now.Sub(committed) >= time.Second {
				committed = now
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					return count.tally(), used, err
				}
			}
		}
		used = meter.Stop()
		return count.tally(), used, client.CommitUncommittedOffsets(ctx)
	}}
}

// Forwarding is a bare loop that writes each record to another topic, and
// commits what was acked.
func Forwarding() Reader {
	return Reader{"bare", func(ctx context.Context, s Source, group string) (t Tally, used Usage, err error) {
		meter := StartMeter(s)
		client, err := kgo.NewClient(append(bareLoop{}.options(s, group), kgo.DefaultProduceTopic(Out))...)
		if err != nil {
			return t, used, err
		}
		defer client.Close()
		var failed error
		var once sync.Once
		for committed := time.Now(); t.Records < s.Records; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return t, used, err
			}
			if t.Records == 0 && !fetches.Empty() {
				meter.First()
			}
			fetches.EachRecord(func(r *kgo.Record) {
				client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, func(_ *kgo.Record, err error) {
					if err != nil {
						once.Do(func() { failed = err })
					}
				})
				t.Add(binary.BigEndian.Uint64(r.Value))
			})
			if now := time.Now(); now.Sub(committed) >= time.Second || t.Records == s.Records {
				committed = now
				if err := client.Flush(ctx); err != nil {
					return t, used, err
				}
				if failed != nil {
					return t, used, failed
				}
				if t.Records == s.Records {
					used = meter.Stop()
				}
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					return t, used, err
				}
			}
		}
		return t, used, nil
	}}
}
