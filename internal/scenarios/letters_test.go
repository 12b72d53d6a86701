package scenarios

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// client makes a client on a host of its own.
func (s *stage) client(opts ...kgo.Opt) (*kgo.Client, host) {
	s.t.Helper()
	h := s.newHost()
	client, err := kgo.NewClient(append(h.ClientOptions(), opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client, h
}

// read returns the first n records of a topic.
func (s *stage) read(topic string, n int) (records []*kgo.Record) {
	s.t.Helper()
	client, _ := s.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(s.t.Context(), s.limit)
	defer cancel()
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("%d records of %s, want %d", len(records), topic, n)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// end returns how many records a topic of one partition has.
func (s *stage) end(topic string) int64 { return s.ends(s.t, topic)[0] }

// invalidAt is a pipeline that finds records of some offsets invalid.
func (s *stage) invalidAt(name string, offsets ...int64) arroyo.Strategy[*kgo.Record] {
	return s.eachBut(name, func(_ context.Context, r *kgo.Record) error {
		if slices.Contains(offsets, r.Offset) {
			return arroyo.Invalid(errBroken)
		}
		return nil
	})
}

func letters(policy arroyo.DeadLetterPolicy) with {
	return with{processor: []arroyo.ProcessorOption{arroyo.DeadLetter(policy)}}
}

// failing: messages that are tried again, or put aside.
var failing = []scenario{
	{
		name: "S8 a rebalance during a retry's back-off", partitions: 4,
		play: func(s *stage) {
			s.put(40)
			var tries atomic.Int64
			m := s.start("m", s.failsForEver(&tries, 5), with{})
			s.eventually("it backs off", func() bool { return tries.Load() > 0 })
			began := time.Now()
			next := s.start("next", s.each("next"), with{})
			s.stable(2)
			s.eventually("the other one has partitions", func() bool { return len(s.partitionsOf("next")) == 2 })
			s.fact("promptly: %v", time.Since(began) < 15*time.Second)
			m.stop()
			s.caughtUp()
			next.stop()
		},
		want: outcome{Processed: 40, Facts: []string{"promptly: true"}},
	},
	{
		name: "S10 shut down during an endless retry", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			dead := s.createTopic(s.t, 1)
			var tries atomic.Int64
			m := s.start("m", s.failsForEver(&tries, 10), letters(arroyo.DeadLetterPolicy{Topic: dead}))
			s.eventually("it backs off", func() bool { return tries.Load() > 0 })
			began := time.Now()
			m.stop()
			s.fact("promptly: %v", time.Since(began) < 5*time.Second)
			s.fact("%d letters", s.end(dead))
			s.thenNext()
		},
		want: outcome{Processed: 20, Facts: []string{"promptly: true", "0 letters", "committed 10", "0 members"}},
	},
	{
		name: "S11 the dead letter is the last of its partition", partitions: 1,
		play: func(s *stage) {
			s.put(10)
			dead := s.createTopic(s.t, 1)
			m := s.start("m", s.invalidAt("m", 9), letters(arroyo.DeadLetterPolicy{Topic: dead}))
			s.caughtUp()
			s.fact("%d letters", s.end(dead))
			m.stop()
		},
		want: outcome{Processed: 9, Facts: []string{"1 letters"}},
	},
	{
		name: "S12 the dead letters' broker is down", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			dead := s.createTopic(s.t, 1)
			producer, h := s.client()
			h.Cut()
			m := s.start("m", s.invalidAt("m", 5, 6), letters(arroyo.DeadLetterPolicy{Topic: dead, Producer: producer}))
			s.processed(18)
			s.whileStill()
			s.fact("committed %d, %d letters", s.committed(s.t, s.group, s.topic)[0], s.end(dead))
			h.Heal()
			s.caughtUp()
			s.fact("%d letters", s.end(dead))
			m.stop()
		},
		want: outcome{Processed: 18, Facts: []string{"committed 5, 0 letters", "2 letters"}},
	},
	{
		name: "S12 a dead letter is too large", partitions: 1,
		play: func(s *stage) {
			s.putTo(0, "a", strings.Repeat("large ", 1000))
			dead := s.createTopic(s.t, 1)
			producer, _ := s.client(kgo.ProducerBatchMaxBytes(2048), kgo.ProducerBatchCompression(kgo.NoCompression()))
			policy := arroyo.DeadLetterPolicy{Topic: dead, Producer: producer, OnFailure: arroyo.DeadLetterStop}
			s.start("m", s.invalidAt("m", 1), letters(policy)).ends()
			s.fact("%d letters", s.end(dead))
			s.thenNext()
		},
		want: outcome{
			Processed: 2, Runs: map[string]string{"m": "dead letter"},
			Facts: []string{"0 letters", "committed 1", "0 members"},
		},
	},
	{
		name: "S12 a null value is a dead letter", partitions: 1,
		play: func(s *stage) {
			s.produce(s.t,
				&kgo.Record{Topic: s.topic, Key: []byte("k")},
				&kgo.Record{Topic: s.topic, Key: []byte("k"), Value: []byte{}})
			dead := s.createTopic(s.t, 1)
			m := s.start("m", s.invalidAt("m", 0, 1), letters(arroyo.DeadLetterPolicy{Topic: dead}))
			s.caughtUp()
			for _, r := range s.read(dead, 2) {
				original, origin, err := arroyo.ReadDeadLetter(r)
				if err != nil {
					s.t.Fatal(err)
				}
				s.fact("%s at %d is null: %v", original.Key, origin.Offset, original.Value == nil)
			}
			m.stop()
		},
		want: outcome{Facts: []string{"k at 0 is null: true", "k at 1 is null: false"}},
	},
	{
		name: "S13 poison first, in the middle, last, and all of a batch", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			dead := s.createTopic(s.t, 1)
			poison := []int64{0, 7, 14, 15, 16, 17, 18, 19}
			m := s.start("m", strategies.ForEachBatch(5, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				for i, row := range rows {
					if slices.Contains(poison, row.Payload.Offset) {
						rows[i].Reject(errBroken)
						continue
					}
					s.saw("m", row.Payload)
				}
				return nil
			}), letters(arroyo.DeadLetterPolicy{Topic: dead}))
			s.caughtUp()
			var offsets []int64
			for _, r := range s.read(dead, len(poison)) {
				_, origin, err := arroyo.ReadDeadLetter(r)
				if err != nil {
					s.t.Fatal(err)
				}
				offsets = append(offsets, origin.Offset)
			}
			slices.Sort(offsets)
			s.fact("letters of %v", offsets)
			m.stop()
		},
		want: outcome{Processed: 12, Facts: []string{"letters of [0 7 14 15 16 17 18 19]"}},
	},
	{
		name: "S24 a producer fails for good with part of the outputs sent", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			out := s.createTopic(s.t, 1)
			client, _ := s.client()
			copied := func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
				return strategies.Outgoing(m, out, m.Payload.Value), nil
			}
			s.start("m", strategies.Produce(&refusing{client, "10"}, copied), with{}).ends()
			s.fact("nothing behind it is committed: %v", s.committed(s.t, s.group, s.topic)[0] <= 10)
			next := s.start("next", strategies.Produce(client, copied), with{})
			s.caughtUp()
			next.stop()
			first := make(map[string]bool)
			var order []string
			for _, r := range s.read(out, int(s.end(out))) {
				if v := string(r.Value); !first[v] {
					first[v] = true
					order = append(order, v)
				}
			}
			s.fact("%d outputs, in order: %v", len(order), slices.IsSortedFunc(order, func(a, b string) int {
				return cmp.Or(len(a)-len(b), strings.Compare(a, b))
			}))
		},
		want: outcome{Runs: map[string]string{"m": "step"}, Facts: []string{"nothing behind it is committed: true", "20 outputs, in order: true"}},
	},
}

// failsForEver is a pipeline that fails at an offset of each partition and tries
// again an hour later.
func (s *stage) failsForEver(tries *atomic.Int64, at int64) arroyo.Strategy[*kgo.Record] {
	return strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
		if m.Payload.Offset == at {
			tries.Add(1)
			return nil, errBroken
		}
		return m.Payload, nil
	}, s.each("m"), strategies.Retry(strategies.RetryPolicy{Min: time.Hour, Max: time.Hour}))
}

// refusing is a client that must not write one value.
type refusing struct {
	*kgo.Client
	value string
}

func (p *refusing) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	if string(r.Value) == p.value {
		promise(r, fmt.Errorf("%w", kerr.TopicAuthorizationFailed))
		return
	}
	p.Client.Produce(ctx, r, promise)
}
