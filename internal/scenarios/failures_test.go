package scenarios

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

var errBroken = errors.New("broken")

// thenNext lets another member finish what a failed one has left.
func (s *stage) thenNext() {
	s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
	s.fact("%d members", len(s.describe(s.t, s.group).members))
	next := s.start("next", s.each("next"), with{})
	s.caughtUp()
	next.stop()
}

// failsAt is a pipeline that fails at the tenth record of partition 0.
func (s *stage) failsAt(fail func() error) arroyo.Strategy[*kgo.Record] {
	return s.eachBut("m", func(_ context.Context, r *kgo.Record) error {
		if r.Partition == 0 && r.Offset == 10 {
			return fail()
		}
		return nil
	})
}

// failures: user code and the group's requests fail.
var failures = []scenario{
	{
		name: "S14 a panic in a function", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			s.start("m", s.failsAt(func() error { panic("boom") }), with{}).ends()
			s.thenNext()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "panic"}, Facts: []string{"committed 10", "0 members"}},
	},
	{
		name: "S14 a panic in a batch", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			s.start("m", strategies.ForEachBatch(5, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				if rows[0].Payload.Offset == 10 {
					panic("boom")
				}
				for _, row := range rows {
					s.saw("m", row.Payload)
				}
				return nil
			}), with{}).ends()
			s.thenNext()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "panic"}, Facts: []string{"committed 10", "0 members"}},
	},
	{
		name: "S14 a panic in a worker", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			var once sync.Once
			s.start("m", steps(func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				once.Do(func() { arroyo.LaneOf(ctx).Go(func(context.Context) error { panic("boom") }) })
				return nil // it keeps them for ever
			}), with{}).ends()
			s.thenNext()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "panic"}, Facts: []string{"committed 0", "0 members"}},
	},
	{
		name: "a function fails", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			s.start("m", s.failsAt(func() error { return errBroken }), with{}).ends()
			s.thenNext()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "step"}, Facts: []string{"committed 10", "0 members"}},
	},
	{
		name: "a message is invalid, and there is nowhere to put it", partitions: 1,
		play: func(s *stage) {
			s.put(11) // none behind it
			s.start("m", s.failsAt(func() error { return arroyo.Invalid(errBroken) }), with{}).ends()
			s.thenNext()
		},
		want: outcome{Processed: 11, Runs: map[string]string{"m": "rejected"}, Facts: []string{"committed 10", "0 members"}},
	},
	{
		name: "messages are dropped and filtered out",
		play: func(s *stage) {
			m := s.start("m", strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool { return m.Payload.Offset%2 == 0 },
				s.eachBut("m", func(_ context.Context, r *kgo.Record) error {
					if r.Offset == 18 {
						return arroyo.Drop
					}
					return nil
				})), with{})
			s.put(40)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 18},
	},
	{
		name: "S26 a drain of a pipeline that has failed", partitions: 4,
		play: func(s *stage) {
			failing := make(chan struct{})
			m := s.start("m", steps(func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				close(failing)
				return errBroken // what it has taken over is never settled
			}), with{})
			s.stable(1)
			s.put(40)
			s.await("it fails", failing)
			began := time.Now()
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			m.ends()
			s.fact("promptly: %v", time.Since(began) < 5*time.Second)
			s.stable(1)
			rival.Leave()
			next := s.start("next", s.each("next"), with{})
			s.caughtUp()
			next.stop()
		},
		want: outcome{Processed: 40, Runs: map[string]string{"m": "step"}, Facts: []string{"promptly: true"}},
	},
	{
		name: "S26 shut down with a pipeline that was closed",
		play: func(s *stage) {
			s.put(20)
			m := s.start("m", s.each("m"), with{})
			s.caughtUp()
			m.consumer.Close()
			m.ends()
			m.consumer.Drain(time.Second)
			m.consumer.Close()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "closed"}},
	},
	{
		name: "S15 commits are answered with errors that pass",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			for _, err := range []*kerr.Error{
				kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress,
				kerr.CoordinatorNotAvailable, kerr.UnknownTopicOrPartition, kerr.RequestTimedOut,
			} {
				fault := s.broker().Fail(kmsg.OffsetCommit, err, memkafka.OfGroup(s.group), memkafka.Times(2))
				s.put(10)
				fault.Wait(2)
				s.caughtUp()
			}
			m.stop()
		},
		memOnly: "a broker cannot be told what to answer",
		want:    outcome{Processed: 60},
	},
	{
		name: "S15 the coordinator moves",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.put(20)
			s.caughtUp()
			s.broker().MoveCoordinator(s.group)
			s.put(20)
			s.caughtUp()
			m.stop()
		},
		memOnly: "there is one broker",
		want:    outcome{Processed: 40},
	},
	{
		name: "S29 a commit lands late, after a newer one",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.stable(1)
			lost := s.broker().Disconnect(kmsg.OffsetCommit, memkafka.Applied(), memkafka.Times(1))
			s.put(20)
			lost.Wait(1)
			s.put(20)
			s.caughtUp()
			late := s.broker().Delay(kmsg.OffsetCommit, 20*time.Second, memkafka.Times(1))
			s.put(20)
			late.Wait(1)
			s.put(20)
			s.caughtUp()
			s.whileStill() // it lands, and the group is behind until the next commit
			s.put(20)
			s.caughtUp()
			m.stop()
		},
		memOnly: "a broker cannot be told to delay a request",
		want:    outcome{Processed: 100},
	},
	{
		name: "S30 nobody answers for half a session",
		play: func(s *stage) {
			var lines countingHandler
			m := s.start("m", s.each("m"), with{processor: []arroyo.ProcessorOption{arroyo.Logger(slog.New(&lines))}})
			s.put(20)
			s.caughtUp()
			before := lines.n.Load()
			m.host.Cut()
			s.put(20)
			time.Sleep(s.session / 2)
			s.fact("few lines: %v", lines.n.Load()-before < 20)
			m.host.Heal()
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 40, Facts: []string{"few lines: true"}},
	},
	{
		name: "S30 commits fail for minutes",
		play: func(s *stage) {
			var lines countingHandler
			m := s.start("m", s.each("m"), with{processor: []arroyo.ProcessorOption{arroyo.Logger(slog.New(&lines))}})
			s.put(20)
			s.caughtUp()
			fault := s.broker().Fail(kmsg.OffsetCommit, kerr.CoordinatorNotAvailable, memkafka.OfGroup(s.group))
			before := lines.n.Load()
			for range 60 {
				s.put(2)
				time.Sleep(5 * time.Second)
			}
			s.fact("few lines: %v", lines.n.Load()-before < 20)
			fault.Heal()
			s.caughtUp()
			m.stop()
		},
		memOnly: "a broker cannot be told what to answer",
		want:    outcome{Processed: 140, Facts: []string{"few lines: true"}},
	},
}

// countingHandler counts lines.
type countingHandler struct{ n atomic.Int64 }

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *countingHandler) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	return nil
}
func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *countingHandler) WithGroup(string) slog.Handler      { return h }
