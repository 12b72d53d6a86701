package scenarios

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// step is a strategy of which a scenario writes what it needs.
type step struct {
	arroyo.Forward[*kgo.Record]
	submit func(context.Context, []arroyo.Message[*kgo.Record]) error
}

func (p step) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	return p.submit(ctx, msgs)
}

// steps is a strategy without one behind it.
func steps(submit func(context.Context, []arroyo.Message[*kgo.Record]) error) step {
	return step{arroyo.ForwardTo(strategies.Noop[*kgo.Record]()), submit}
}

// never is a batch that only a flush hands out. It counts what goes into it.
func (s *stage) never(name string, in *atomic.Int32) arroyo.Strategy[*kgo.Record] {
	batch := strategies.ForEachBatch(1_000_000, 24*time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		for _, row := range rows {
			s.saw(name, row.Payload)
		}
		return nil
	})
	return strategies.Filter(func(arroyo.Message[*kgo.Record]) bool { in.Add(1); return true }, batch)
}

// drains: partitions are given back, and members are shut down.
var drains = []scenario{
	{
		name: "S2 half-full batch at a revoke", partitions: 4,
		play: func(s *stage) {
			var in atomic.Int32
			m := s.start("m", s.never("m", &in), with{})
			s.stable(1)
			s.put(40)
			s.eventually("all are in the batch", func() bool { return in.Load() == 40 })
			s.fact("processed %d before", s.by("m"))
			began := time.Now()
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			s.stable(2)
			s.fact("promptly: %v", time.Since(began) < 15*time.Second)
			committed := s.committed(s.t, s.group, s.topic)
			for _, p := range rival.Assigned() {
				s.fact("given up at %d", committed[p])
			}
			m.stop()
		},
		want: outcome{Processed: 40, Facts: []string{"processed 0 before", "promptly: true", "given up at 10", "given up at 10"}},
	},
	{
		name: "S2 half-full batch at the end",
		play: func(s *stage) {
			var in atomic.Int32
			m := s.start("m", s.never("m", &in), with{})
			s.put(40)
			s.eventually("all are in the batch", func() bool { return in.Load() == 40 })
			m.stop()
		},
		want: outcome{Processed: 40},
	},
	{
		name: "S3 settled after the partition is another's",
		play: func(s *stage) {
			release := make(chan struct{})
			var once sync.Once
			var mu sync.Mutex
			var kept []arroyo.Message[*kgo.Record]
			var in atomic.Int32
			settle := func(msgs []arroyo.Message[*kgo.Record]) {
				for _, m := range msgs {
					if !m.Fenced() {
						s.saw("late", m.Payload)
					}
					m.Ack()
				}
			}
			late := s.start("late", steps(func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				once.Do(func() {
					arroyo.LaneOf(ctx).Go(func(ctx context.Context) error {
						select {
						case <-release:
						case <-ctx.Done():
							return nil
						}
						mu.Lock()
						defer mu.Unlock()
						settle(kept)
						kept = nil
						return nil
					})
				})
				mu.Lock()
				defer mu.Unlock()
				in.Add(int32(len(msgs)))
				select {
				case <-release:
					settle(kept)
					kept = nil
					settle(msgs)
				default:
					kept = append(kept, msgs...)
				}
				return nil
			}), with{processor: []arroyo.ProcessorOption{arroyo.DrainTimeout(2 * time.Second)}})
			s.stable(1)
			s.put(20)
			s.eventually("all are in work", func() bool { return in.Load() == 20 })
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.processed(10)
			s.put(20)
			p := s.partitionsOf("b")[0]
			s.eventually("b has committed its partition", func() bool { return s.committed(s.t, s.group, s.topic)[p] == 20 })
			close(release)
			s.caughtUp()
			s.whileStill()
			s.fact("b's partition is committed at %d", s.committed(s.t, s.group, s.topic)[p])
			late.stop()
			b.stop()
		},
		want: outcome{Processed: 40, Facts: []string{"b's partition is committed at 20"}},
	},
	{
		name: "S9 shut down during a rebalance",
		play: func(s *stage) {
			held := make(chan func(), 1)
			slow, _ := s.open("slow", with{})
			s.serve(slow, func(ev arroyo.Event) {
				if ev, ok := ev.(*arroyo.Revoked); ok {
					select {
					case held <- ev.Hold():
					default:
					}
				}
			})
			s.stable(1)
			m := s.start("m", s.each("m"), with{})
			var release func()
			select {
			case release = <-held:
			case <-time.After(s.limit):
				s.t.Fatal("nothing is revoked")
			}
			s.eventually("it has asked to join", func() bool { return len(s.describe(s.t, s.group).members) == 2 })
			began := time.Now()
			m.stop()
			s.fact("promptly: %v", time.Since(began) < 5*time.Second)
			s.eventually("it has left", func() bool { return len(s.describe(s.t, s.group).members) == 1 })
			s.fact("without a session timeout: %v", time.Since(began) < s.session*9/10)
			release()
		},
		// Nobody has read the empty topic, nor committed more than its start.
		want: outcome{Facts: []string{"promptly: true", "without a session timeout: true"}},
	},
	{
		name: "a function that does not return at a revoke",
		play: func(s *stage) {
			release, works := make(chan struct{}), make(chan struct{})
			var first atomic.Bool
			stuck := s.start("stuck", strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
				if first.CompareAndSwap(false, true) {
					close(works)
					<-release
					return ctx.Err() // it has ended if that was the partition that went
				}
				s.saw("stuck", m.Payload)
				return nil
			}), with{processor: []arroyo.ProcessorOption{arroyo.DrainTimeout(2 * time.Second)}, kgo: []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}})
			s.putTo(1, "a", "b", "c") // the range balancer gives it to the second one
			s.await("it is stuck", works)
			// The member IDs begin with the client IDs, by which the balancer sorts.
			next := s.start("t-next", s.each("next"), with{kgo: []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}})
			s.stable(2)
			s.processed(3)
			close(release)
			s.put(20)
			s.caughtUp()
			s.fact("next saw partition %v", s.partitionsOf("t-next"))
			next.stop()
			stuck.stop()
		},
		under: []string{"eager"},
		want:  outcome{Processed: 23, Facts: []string{"next saw partition [1]"}},
	},
	{
		name: "a function that does not return at the end",
		play: func(s *stage) {
			release, works := make(chan struct{}), make(chan struct{})
			defer close(release)
			s.putTo(0, "a", "b", "stuck", "d")
			m := s.start("m", s.eachBut("m", func(_ context.Context, r *kgo.Record) error {
				if string(r.Value) == "stuck" {
					close(works)
					<-release
					return errors.New("too late")
				}
				return nil
			}), with{processor: []arroyo.ProcessorOption{arroyo.DrainTimeout(2 * time.Second)}})
			s.await("it is stuck", works)
			began := time.Now()
			m.stop()
			s.fact("in time: %v", time.Since(began) < 4*time.Second)
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
			next := s.start("next", s.each("next"), with{})
			s.caughtUp()
			next.stop()
			s.fact("next saw %d", s.by("next"))
		},
		want: outcome{Processed: 4, Runs: map[string]string{"m": "abandoned"}, Facts: []string{"in time: true", "committed 2", "next saw 2"}},
	},
	{
		name: "the network is gone at the end",
		play: func(s *stage) {
			s.put(20)
			m := s.start("m", s.each("m"), with{processor: []arroyo.ProcessorOption{arroyo.CommitInterval(time.Hour), arroyo.DrainTimeout(3 * time.Second)}})
			s.processed(20)
			m.host.BlackHole()
			began := time.Now()
			err := m.run()
			s.fact("in time: %v, an error: %v", time.Since(began) < 5*time.Second, err != nil)
			next := s.start("next", s.each("next"), with{})
			s.caughtUp()
			next.stop()
		},
		want: outcome{Processed: 20, Twice: 20, Facts: []string{"in time: true, an error: true"}},
	},
	{
		name: "shut down before anything came", partitions: 4,
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			m.stop()
			s.fact("%d members are left", len(s.describe(s.t, s.group).members))
		},
		want: outcome{Facts: []string{"0 members are left"}},
	},
}
