package scenarios

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

func startAt(p arroyo.StartPolicy) with {
	return with{consumer: []arroyo.ConsumerOption{arroyo.Start(p)}}
}

// started waits until the group has a start for each partition.
func (s *stage) started() {
	s.t.Helper()
	s.eventually("the starts are committed", func() bool {
		return len(s.committed(s.t, s.group, s.topic)) == s.partitions
	})
}

// starts: where a group begins.
var starts = []scenario{
	{
		name: "start at the latest",
		play: func(s *stage) {
			s.put(20)
			first := s.start("first", s.each("first"), startAt(arroyo.StartLatest()))
			s.started()
			first.stop()
			s.put(20) // between the members
			second := s.start("second", s.each("second"), startAt(arroyo.StartLatest()))
			s.caughtUp()
			second.stop()
		},
		want: outcome{Processed: 20},
	},
	{
		name: "start at a time", partitions: 1,
		play: func(s *stage) {
			at := time.UnixMilli(1_700_000_000_000)
			for i := range 10 {
				r := s.record(0, "x")
				r.Timestamp = at.Add(time.Duration(i) * time.Hour)
				s.produce(s.t, r)
			}
			m := s.start("m", s.each("m"), startAt(arroyo.StartAtTime(at.Add(6*time.Hour-time.Minute))))
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 4},
	},
	{
		name: "start at a time after all records", partitions: 1,
		play: func(s *stage) {
			s.put(10)
			m := s.start("m", s.each("m"), startAt(arroyo.StartAtTime(time.Now().Add(time.Hour))))
			s.started()
			s.put(5)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 5},
	},
	{
		name: "start where a function says",
		play: func(s *stage) {
			s.put(20)
			m := s.start("m", s.each("m"), startAt(arroyo.StartFrom(func(_ context.Context, p arroyo.Partition) (int64, error) {
				return int64(4 + p.Number), nil
			})))
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 11},
	},
	{
		name: "the function that says where to start fails",
		play: func(s *stage) {
			s.put(20)
			s.start("m", s.each("m"), startAt(arroyo.StartFrom(func(context.Context, arroyo.Partition) (int64, error) {
				return 0, errBroken
			}))).ends()
			s.fact("%d committed", len(s.committed(s.t, s.group, s.topic)))
			next := s.start("next", s.each("next"), with{})
			s.caughtUp()
			next.stop()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"m": "start"}, Facts: []string{"0 committed"}},
	},
	{
		name: "a partition is added later",
		play: func(s *stage) {
			latest := startAt(arroyo.StartLatest())
			latest.kgo = []kgo.Opt{kgo.MetadataMaxAge(2 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond)}
			s.put(20)
			m := s.start("m", s.each("m"), latest)
			s.started()
			s.addPartitions(s.t, s.topic, 4)
			s.partitions = 4
			s.putTo(2, "a", "b")
			s.putTo(3, "a", "b", "c")
			s.processed(5)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 5},
	},
	{
		name: "an unknown topic",
		play: func(s *stage) {
			s.start("m", s.each("m"), with{topic: "no-such-topic"}).ends()
		},
		want: outcome{Runs: map[string]string{"m": "unknown topic"}},
	},
}
