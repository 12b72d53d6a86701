package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

var readCommitted = with{kgo: []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())}}

// abort appends values to partition 0 in a transaction that is aborted.
func (s *stage) abort(values ...string) {
	tx := s.begin(s.t)
	tx.Produce(s.topic, values...)
	tx.Abort()
}

// logs: what a partition's log can look like.
var logs = []scenario{
	{
		name: "the log ends in an aborted transaction, read committed", partitions: 1,
		play: func(s *stage) {
			s.put(10)
			s.abort("x", "y")
			m := s.start("m", s.each("m"), readCommitted)
			s.caughtUp()
			m.stop()
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
		},
		want: outcome{Processed: 10, Facts: []string{"committed 13"}},
	},
	{
		name: "the log ends in an aborted transaction, read uncommitted", partitions: 1,
		play: func(s *stage) {
			s.put(10)
			s.abort("x", "y")
			m := s.start("m", s.each("m"), with{})
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 12},
	},
	{
		name: "the log has nothing but an aborted transaction", partitions: 1,
		play: func(s *stage) {
			s.abort("x")
			m := s.start("m", s.each("m"), readCommitted)
			s.caughtUp()
			m.stop()
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
		},
		want: outcome{Facts: []string{"committed 2"}},
	},
	{
		name: "an open transaction holds readers up", partitions: 1,
		play: func(s *stage) {
			s.put(5)
			tx := s.begin(s.t)
			tx.Produce(s.topic, "x", "y")
			s.put(5)
			m := s.start("m", s.each("m"), readCommitted)
			s.processed(5)
			s.whileStill()
			s.fact("%d before the transaction ends", s.by("m"))
			tx.Commit()
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 12, Facts: []string{"5 before the transaction ends"}},
	},
	{
		name: "an empty topic", partitions: 4,
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.eventually("the starts are committed", func() bool { return len(s.committed(s.t, s.group, s.topic)) == 4 })
			m.stop()
		},
		want: outcome{},
	},
	{
		name: "large records",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			for p := range int32(2) {
				for range 3 {
					s.produce(s.t, &kgo.Record{Topic: s.topic, Partition: p, Value: bytes.Repeat([]byte("x"), 900_000)})
				}
			}
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 6},
	},
	{
		name: "keys, headers, times and null values arrive", partitions: 1,
		play: func(s *stage) {
			at := time.UnixMilli(1_600_000_000_123)
			s.produce(s.t, &kgo.Record{
				Topic: s.topic, Key: []byte("k"), Timestamp: at,
				Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "h"}},
			})
			m := s.start("m", s.eachBut("m", func(_ context.Context, r *kgo.Record) error {
				s.fact("key %s, null %v, at %v, headers %s", r.Key, r.Value == nil, r.Timestamp.Equal(at), fmt.Sprint(r.Headers))
				return nil
			}), with{})
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 1, Facts: []string{"key k, null true, at true, headers [{h [118]} {h []}]"}},
	},
	{
		name: "S16 the committed offset is below the log's start", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			s.commit(s.t, s.group, s.topic, 0, 5)
			s.deleteRecords(s.t, s.topic, 0, 8)
			s.start("strict", s.each("strict"), with{}).ends()
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
			lenient := s.start("lenient", s.each("lenient"), with{consumer: []arroyo.ConsumerOption{arroyo.ResetOutOfRange(arroyo.StartEarliest())}})
			s.caughtUp()
			lenient.stop()
		},
		want: outcome{Processed: 12, Runs: map[string]string{"strict": "offset 5 outside of 8 to 20"}, Facts: []string{"committed 5"}},
	},
	{
		name: "S16 the committed offset is above the log's end", partitions: 1,
		play: func(s *stage) {
			s.put(20)
			s.commit(s.t, s.group, s.topic, 0, 50)
			s.start("strict", s.each("strict"), with{}).ends()
			s.fact("committed %d", s.committed(s.t, s.group, s.topic)[0])
			lenient := s.start("lenient", s.each("lenient"), with{consumer: []arroyo.ConsumerOption{arroyo.ResetOutOfRange(arroyo.StartEarliest())}})
			s.caughtUp()
			lenient.stop()
		},
		want: outcome{Processed: 20, Runs: map[string]string{"strict": "offset 50 outside of 0 to 20"}, Facts: []string{"committed 50"}},
	},
	{
		name: "S20 the group's offsets are forgotten",
		play: func(s *stage) {
			s.put(20)
			first := s.start("first", s.each("first"), with{})
			s.caughtUp()
			first.stop()
			s.forget(s.t, s.group)
			s.fact("%d committed", len(s.committed(s.t, s.group, s.topic)))
			s.put(20)
			second := s.start("second", s.each("second"), with{})
			s.caughtUp()
			second.stop()
		},
		want: outcome{Processed: 40, Twice: 20, Facts: []string{"0 committed"}},
	},
	{
		name: "records are deleted behind a reader",
		play: func(s *stage) {
			m := s.start("m", s.each("m"), with{})
			s.put(40)
			s.caughtUp()
			s.deleteRecords(s.t, s.topic, 0, 20)
			s.put(40)
			s.caughtUp()
			m.stop()
		},
		want: outcome{Processed: 80},
	},
}
