package scenarios

import (
	"errors"
	"fmt"

	"github.com/arroyo-go/arroyo"
)

// loops: what a loop of one's own can do.
var loops = []scenario{
	{
		name: "StartAt",
		play: func(s *stage) {
			s.put(20)
			c, _ := s.open("c", with{})
			s.poll(c, "13 records", func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Assigned:
					for _, e := range ev.Epochs {
						if e.Number == 0 {
							if err := ev.StartAt(e, 7); err != nil {
								s.fact("StartAt: %v", err)
							}
						}
					}
				case *arroyo.Fetched:
					for _, r := range ev.Records {
						s.saw("c", r)
					}
				}
			}, func() bool { n, _, _ := s.totals(); return n == 13 })
			s.fact("committed %v", s.committed(s.t, s.group, s.topic))
			c.Close()
		},
		want: outcome{Processed: 13, Behind: 2, Facts: []string{"committed map[1:0]"}},
	},
	{
		name: "Seek back",
		play: func(s *stage) {
			s.put(20)
			c, _ := s.open("c", with{})
			at := make(map[arroyo.Epoch]int64)
			var zero arroyo.Epoch
			handle := func(ev arroyo.Event) {
				switch ev := ev.(type) {
				case *arroyo.Assigned:
					for _, e := range ev.Epochs {
						if e.Number == 0 {
							zero = e
						}
					}
					if ev.Reason != nil {
						s.fact("assigned again: %v", errors.Is(ev.Reason, arroyo.ErrSeek))
					}
				case *arroyo.Lost:
					s.fact("lost %d: %v", len(ev.Epochs), errors.Is(ev.Reason, arroyo.ErrSeek))
					for _, e := range ev.Epochs {
						delete(at, e)
					}
				case *arroyo.Fetched:
					at[ev.Epoch] = ev.Next
					for _, r := range ev.Records {
						s.saw(fmt.Sprint("epoch", ev.Epoch.N), r)
					}
				}
			}
			s.poll(c, "all", handle, func() bool { n, _, _ := s.totals(); return n == 20 })
			old := zero
			if err := c.Commit(s.t.Context(), at); err != nil {
				s.t.Fatal(err)
			}
			if err := c.Seek(map[arroyo.Epoch]int64{zero: 4}); err != nil {
				s.t.Fatal(err)
			}
			s.poll(c, "six again", handle, func() bool { _, twice, _ := s.totals(); return twice == 6 })
			err := c.Commit(s.t.Context(), map[arroyo.Epoch]int64{old: 10})
			s.fact("the old epoch is fenced: %v", errors.Is(err, arroyo.ErrFenced))
			if err := c.Commit(s.t.Context(), map[arroyo.Epoch]int64{zero: 5}); err != nil {
				s.t.Fatal(err)
			}
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
			c.Close()
		},
		want: outcome{
			Processed: 20, Twice: 6, Behind: 1,
			Facts: []string{"lost 1: true", "assigned again: true", "the old epoch is fenced: true", "committed 5"},
		},
	},
	{
		name: "EndOfPartition once per catching up", partitions: 1,
		play: func(s *stage) {
			s.put(5)
			s.abort("x")
			w := readCommitted
			w.consumer = []arroyo.ConsumerOption{arroyo.EndOfPartitionEvents()}
			c, _ := s.open("c", w)
			var ends []int64
			handle := func(ev arroyo.Event) {
				if ev, ok := ev.(*arroyo.EndOfPartition); ok {
					ends = append(ends, ev.Offset)
				}
			}
			s.poll(c, "the first end", handle, func() bool { return len(ends) == 1 })
			s.put(1)
			s.poll(c, "the second end", handle, func() bool { return len(ends) == 2 })
			s.fact("ends %v", ends)
			c.Close()
		},
		want: outcome{Behind: 1, Facts: []string{"ends [7 8]"}},
	},
	{
		name: "position and lag",
		play: func(s *stage) {
			s.put(20)
			c, _ := s.open("c", with{})
			s.poll(c, "all records", func(ev arroyo.Event) {
				if ev, ok := ev.(*arroyo.Fetched); ok {
					for _, r := range ev.Records {
						s.saw("c", r)
					}
				}
			}, func() bool { n, _, _ := s.totals(); return n == 20 })
			for _, e := range c.Assignment() {
				at, ok := c.Position(e)
				s.fact("%d: %d %v, lag %d", e.Number, at, ok, c.Lag()[e])
			}
			c.Close()
		},
		want: outcome{Processed: 20, Behind: 2, Facts: []string{"0: 10 true, lag 0", "1: 10 true, lag 0"}},
	},
}
