package scenarios

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// settlements: what loops of one's own commit.
var settlements = []scenario{
	{
		name: "S28 a commit is cancelled by its context",
		play: func(s *stage) {
			s.put(20)
			c, _ := s.open("c", with{})
			var at map[arroyo.Epoch]int64
			s.poll(c, "all records", func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Assigned:
					at = make(map[arroyo.Epoch]int64)
				case *arroyo.Fetched:
					at[ev.Epoch] = ev.Next
					for _, r := range ev.Records {
						s.saw("c", r)
					}
				}
			}, func() bool { n, _, _ := s.totals(); return n == 20 })
			for range 5 {
				ctx, cancel := context.WithCancel(s.t.Context())
				cancel()
				err := c.Commit(ctx, at)
				var commit *arroyo.CommitError
				if err != nil && !errors.As(err, &commit) {
					s.fact("a cancelled commit: %v", err)
				}
			}
			// Its membership has taken no harm.
			until := time.Now().Add(s.session * 3 / 2)
			s.poll(c, "a session", func(ev arroyo.Event) { s.fact("%T", ev) }, func() bool { return time.Now().After(until) })
			if err := c.Commit(s.t.Context(), at); err != nil {
				s.fact("the last commit: %v", err)
			}
			s.fact("%d members", len(s.describe(s.t, s.group).members))
		},
		want: outcome{Processed: 20, Facts: []string{"1 members"}},
	},
	{
		name: "S4 a partition comes back before its records are handled",
		play: func(s *stage) {
			s.put(20)
			c, _ := s.open("c", with{})
			first, now := make(map[int32]arroyo.Epoch), make(map[int32]arroyo.Epoch)
			got := make(map[arroyo.Epoch]int)
			handle := func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Assigned:
					for _, e := range ev.Epochs {
						now[e.Number] = e
						if _, ok := first[e.Number]; !ok {
							first[e.Number] = e
						}
					}
				case *arroyo.Revoked:
					for _, e := range ev.Epochs {
						delete(now, e.Number)
					}
				case *arroyo.Fetched:
					got[ev.Epoch] += len(ev.Records)
				}
			}
			s.poll(c, "all records", handle, func() bool { return got[first[0]]+got[first[1]] == 20 })
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			s.poll(c, "the rival has one", handle, func() bool {
				view := s.describe(s.t, s.group)
				return view.stable && len(view.members) == 2 && view.assigned() == 2 && len(now) == 1
			})
			p := rival.Assigned()[0]
			rival.Leave()
			s.poll(c, "it has come back", handle, func() bool {
				e, ok := now[p]
				return ok && e != first[p] && got[e] == 10
			})
			err := c.Commit(s.t.Context(), map[arroyo.Epoch]int64{first[p]: 5})
			var refused *arroyo.NotHeldError
			s.fact("the old epoch is refused: %v", errors.As(err, &refused))
			_, committed := s.committed(s.t, s.group, s.topic)[p], c.Commit(s.t.Context(), map[arroyo.Epoch]int64{now[0]: 10, now[1]: 10})
			s.fact("the new one: %v", committed)
			c.Close()
		},
		want: outcome{Facts: []string{"the old epoch is refused: true", "the new one: <nil>"}},
	},
	{
		name: "S7 a pause outlasts a rebalance of others", partitions: 4,
		play: func(s *stage) {
			c, _ := s.open("c", with{})
			s.serve(c, func(ev arroyo.Event) {
				if ev, ok := ev.(*arroyo.Fetched); ok {
					for _, r := range ev.Records {
						s.saw("c", r)
					}
					if err := c.Commit(s.t.Context(), map[arroyo.Epoch]int64{ev.Epoch: ev.Next}); err != nil {
						s.t.Errorf("Commit: %v", err)
					}
				}
			})
			s.stable(1)
			s.eventually("it has them", func() bool { return len(c.Assignment()) == 4 })
			var all []arroyo.Partition
			for p := range int32(4) {
				all = append(all, arroyo.Partition{Topic: s.topic, Number: p})
			}
			if err := c.Pause(all...); err != nil {
				s.t.Fatal(err)
			}
			rival := s.join(s.t, s.group, s.topic, s.opts...)
			s.stable(2)
			s.fact("the rival has %d", len(rival.Assigned()))
			s.put(40)
			s.whileStill()
			s.fact("%d records came", s.by("c"))
			kept := s.partitionsOf("c")
			for _, p := range kept {
				if err := c.Resume(arroyo.Partition{Topic: s.topic, Number: p}); err != nil {
					s.t.Fatal(err)
				}
			}
			s.processed(20)
			rival.Leave()
			s.caughtUp() // those that come back are not paused
			c.Close()
		},
		under: []string{"cooperative", "kip848"}, // an eager rebalance concerns all
		want:  outcome{Processed: 40, Facts: []string{"the rival has 2", "0 records came"}},
	},
	{
		name: "a loop drains", partitions: 3,
		play: func(s *stage) {
			s.put(30)
			c, _ := s.open("c", with{})
			at := make(map[arroyo.Epoch]int64)
			closed := false
			s.poll(c, "the end", func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Fetched:
					at[ev.Epoch] = ev.Next
					for _, r := range ev.Records {
						s.saw("c", r)
					}
					if n, _, _ := s.totals(); n == 30 {
						c.Drain(10 * time.Second)
					}
				case *arroyo.Revoked:
					s.fact("revoked %d", len(ev.Epochs))
					if err := c.Commit(s.t.Context(), at); err != nil {
						s.fact("Commit: %v", err)
					}
				case *arroyo.Closed:
					closed = true
				}
			}, func() bool { return closed })
			_, err := c.Poll(s.t.Context())
			s.fact("then ErrClosed: %v, %d members", errors.Is(err, arroyo.ErrClosed), len(s.describe(s.t, s.group).members))
		},
		want: outcome{Processed: 30, Facts: []string{"revoked 3", "then ErrClosed: true, 0 members"}},
	},
	{
		name: "a revoke is held past its deadline",
		play: func(s *stage) {
			s.put(20)
			short := []kgo.Opt{kgo.RebalanceTimeout(10 * time.Second)}
			c, _ := s.open("c", with{kgo: short})
			var held *arroyo.Revoked
			at := make(map[arroyo.Epoch]int64)
			s.serve(c, func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Fetched:
					at[ev.Epoch] = ev.Next
				case *arroyo.Revoked:
					if held == nil {
						held = ev
						ev.Hold() // and forgets it
					}
				}
			})
			s.stable(1)
			b := s.start("b", s.each("b"), with{kgo: short})
			s.stable(2)
			s.processed(10)
			err := c.Commit(s.t.Context(), map[arroyo.Epoch]int64{held.Epochs[0]: 3, held.Epochs[len(held.Epochs)-1]: 3})
			s.fact("fenced: %v", errors.Is(err, arroyo.ErrFenced))
			c.Close()
			s.caughtUp()
			b.stop()
		},
		want: outcome{Processed: 20, Facts: []string{"fenced: true"}},
	},
}
