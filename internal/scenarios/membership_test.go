package scenarios

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// membership: members come, go, die and are cut off.
var membership = []scenario{
	{
		name: "alone", partitions: 4,
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.put(40)
			s.caughtUp()
			m.stop()
			s.fact("%d members are left", len(s.describe(s.t, s.group).members))
		},
		want: outcome{Processed: 40, Facts: []string{"0 members are left"}},
	},
	{
		name: "a second member joins and leaves", partitions: 4,
		play: func(s *stage) {
			a := s.start("a", s.each("a"), with{})
			s.stable(1)
			s.put(40)
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.put(40)
			s.caughtUp()
			b.stop()
			s.stable(1)
			s.put(40)
			s.caughtUp()
			a.stop()
			s.fact("b processed some: %v", s.by("b") >= 20)
		},
		want: outcome{Processed: 120, Facts: []string{"b processed some: true"}},
	},
	{
		name: "three members join at once", partitions: 6,
		play: func(s *stage) {
			s.put(60)
			var all []*member
			for _, name := range []string{"a", "b", "c"} {
				all = append(all, s.start(name, s.each(name), with{}))
			}
			s.stable(3)
			s.put(60)
			s.caughtUp()
			for _, m := range all {
				s.fact("%s has %d", m.name, len(s.partitionsOf(m.name)))
			}
			for _, m := range all {
				m.stop()
			}
		},
		want: outcome{Processed: 120, Facts: []string{"a has 2", "b has 2", "c has 2"}},
	},
	{
		name: "members are restarted one after another", partitions: 6,
		play: func(s *stage) {
			var all []*member
			for _, name := range []string{"a1", "b1", "c1"} {
				all = append(all, s.start(name, s.each(name), with{}))
			}
			s.stable(3)
			for i, name := range []string{"a2", "b2", "c2"} {
				s.put(30)
				all[i].stop()
				all[i] = s.start(name, s.each(name), with{})
				s.stable(3)
			}
			s.put(30)
			s.caughtUp()
			for _, m := range all {
				m.stop()
			}
		},
		want: outcome{Processed: 120},
	},
	{
		name: "a member crashes", partitions: 4,
		play: func(s *stage) {
			a := s.start("a", s.each("a"), with{})
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.put(40)
			s.caughtUp()
			a.crash()
			died := time.Now()
			s.put(40)
			s.caughtUp()
			s.fact("b waited for a session: %v", time.Since(died) > s.session/2)
			b.stop()
		},
		want: outcome{Processed: 80, Runs: map[string]string{"a": "closed"}, Facts: []string{"b waited for a session: true"}},
	},
	{
		name: "a member crashes before it has committed",
		play: func(s *stage) {
			s.put(40)
			a := s.start("a", s.each("a"), with{processor: []arroyo.ProcessorOption{arroyo.CommitInterval(time.Hour)}})
			s.processed(40)
			a.crash()
			b := s.start("b", s.each("b"), with{})
			s.caughtUp()
			b.stop()
		},
		want: outcome{Processed: 40, Twice: 40, Runs: map[string]string{"a": "closed"}},
	},
	{
		name: "a member is black-holed while idle", partitions: 4,
		play: func(s *stage) {
			a := s.start("a", s.each("a"), with{})
			s.stable(1)
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.put(40)
			s.caughtUp()
			a.host.BlackHole()
			s.put(40)
			s.caughtUp()
			a.host.Heal()
			s.stable(2)
			s.put(40)
			s.caughtUp()
			s.fact("a has %d again", len(s.partitionsOf("a")))
			a.stop()
			b.stop()
		},
		want: outcome{Processed: 120, Facts: []string{"a has 2 again"}},
	},
	{
		name: "S27 a zombie is fenced within its session", partitions: 4,
		play: func(s *stage) {
			works, fenced := make(chan struct{}), make(chan struct{})
			zombie := s.start("z", s.eachBut("z", func(ctx context.Context, r *kgo.Record) error {
				if string(r.Value) != "slow" {
					return nil
				}
				close(works)
				<-ctx.Done()
				close(fenced)
				return ctx.Err()
			}), with{})
			s.stable(1)
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.putTo(s.partitionsOf("z")[0], "slow")
			s.await("the zombie works", works)
			zombie.host.BlackHole()
			cut := time.Now()
			s.await("the zombie is fenced", fenced)
			s.fact("fenced within its session: %v", time.Since(cut) <= s.session)
			s.caughtUp() // by b
			zombie.host.Heal()
			s.stable(2)
			s.put(40)
			s.caughtUp()
			zombie.stop()
			b.stop()
		},
		want: outcome{Processed: 41, Facts: []string{"fenced within its session: true"}},
	},
	{
		name: "the network is gone for less than a session",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.put(20)
			s.caughtUp()
			m.host.Cut()
			s.put(20)
			time.Sleep(s.session / 4)
			m.host.Heal()
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 40},
	},
	{
		name: "a static member restarts",
		play: func(s *stage) {
			static := with{kgo: []kgo.Opt{kgo.InstanceID("one")}}
			first := s.start("first", s.each("first"), static)
			s.put(20)
			s.caughtUp()
			first.stop()
			s.fact("%d members after it went", len(s.describe(s.t, s.group).members))
			s.put(20)
			began := time.Now()
			second := s.start("second", s.each("second"), static)
			s.caughtUp()
			s.fact("promptly: %v", time.Since(began) < s.session*3/4)
			second.stop()
			s.fact("the second processed %d", s.by("second"))
		},
		want: outcome{Processed: 40, Facts: []string{"1 members after it went", "promptly: true", "the second processed 20"}},
	},
	{
		name: "S1 a partition goes before its first record", partitions: 4,
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.stable(1)
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			s.stable(2)
			rival.Leave()
			s.stable(1)
			s.put(40)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 40},
	},
	{
		name: "a rival dies", partitions: 4,
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.stable(1)
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			s.stable(2)
			s.put(40)
			s.processed(20)
			rival.Die()
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 40},
	},
	{
		name: "a member is removed by an administrator",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.put(20)
			s.caughtUp()
			s.kick(s.t, s.group, "m")
			s.stable(1) // it has come back
			s.put(20)
			s.caughtUp()
			m.stop()
		},
		want:      outcome{Processed: 40},
		realUnder: []string{"cooperative", "eager"}, // there is no such request for the members of KIP-848
	},
	{
		name: "two groups read one topic",
		play: func(s *stage) {
			other := s.newGroup(s.t)
			a := s.start("a", s.each("a"), with{})
			b := s.start("b", s.each("b"), with{group: other})
			s.put(40)
			s.caughtUp()
			s.eventually("the other group has committed all", func() bool { return s.behind(other) == 0 })
			a.stop()
			b.stop()
			s.fact("a saw %d, b saw %d", s.by("a"), s.by("b"))
		},
		want: outcome{Processed: 40, Twice: 40, Facts: []string{"a saw 40, b saw 40"}},
	},
	{
		name: "two hundred partitions", partitions: 200,
		play: func(s *stage) {
			s.put(400)
			a := s.start("a", s.each("a"), with{})
			s.caughtUp()
			b := s.start("b", s.each("b"), with{})
			s.stable(2)
			s.put(400)
			s.caughtUp()
			s.fact("a has %d", len(s.partitionsOf("a")))
			a.stop()
			b.stop()
		},
		want: outcome{Processed: 800, Facts: []string{"a has 100"}},
	},
	{
		name: "more members than partitions",
		play: func(s *stage) {
			var all []*member
			for i := range 3 {
				name := fmt.Sprint("m", i)
				all = append(all, s.start(name, s.each(name), with{}))
				s.stable(i + 1)
			}
			s.put(40)
			s.caughtUp()
			idle := 0
			for _, m := range all {
				if len(s.partitionsOf(m.name)) == 0 {
					idle++
				}
			}
			s.fact("%d is idle", idle)
			for _, m := range all {
				m.stop()
			}
		},
		want: outcome{Processed: 40, Facts: []string{"1 is idle"}},
	},
	{
		name: "S22 the downstream stalls for longer than a session",
		play: func(s *stage) {
			var stalled atomic.Bool
			stalled.Store(true)
			m := s.start("m", s.eachBut("m", func(ctx context.Context, _ *kgo.Record) error {
				for stalled.Load() && ctx.Err() == nil {
					time.Sleep(100 * time.Millisecond)
				}
				return ctx.Err()
			}), with{processor: []arroyo.ProcessorOption{arroyo.MaxInFlight(10)}})
			s.stable(1)
			s.put(100)
			time.Sleep(s.session * 3 / 2)
			s.fact("%d members", len(s.describe(s.t, s.group).members))
			stalled.Store(false)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 100, Facts: []string{"1 members"}},
	},
	{
		name: "S21 one slow partition among fast ones", partitions: 4,
		play: func(s *stage) {
			s.put(80)
			pause := s.session / 20
			m := s.start("m", s.eachBut("m", func(_ context.Context, r *kgo.Record) error {
				if r.Partition == 0 {
					time.Sleep(pause)
				}
				return nil
			}), with{processor: []arroyo.ProcessorOption{arroyo.MaxInFlight(20)}})
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 80},
	},
}
