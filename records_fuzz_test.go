package arroyo_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// Whatever is in a record, in a topic or in a commit log: it is processed or its
// dead letter is the record as it was, and the group goes on behind it.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("k"), []byte(`{"a":1}`), "h", []byte("v"), byte(0), int64(0))
	f.Add([]byte("events:0:store"), []byte(`{"offset":99,"orig_message_ts":1e400}`), "original_partition", []byte("-1"), byte(0), int64(-1))
	f.Add([]byte("events:0:store"), []byte("-9223372036854775808"), "orig_message_ts", []byte("9999-99-99"), byte(8), int64(1)<<62)
	f.Add([]byte(":::"), []byte{0xff, 0}, "", []byte(nil), byte(7), int64(1))
	f.Fuzz(func(t *testing.T, key, value []byte, header string, headerValue []byte, nulls byte, ms int64) {
		if nulls&1 != 0 {
			key = nil
		}
		if nulls&2 != 0 {
			value = nil
		}
		if nulls&4 != 0 {
			headerValue = nil
		}
		record := func(topic string) *kgo.Record {
			r := &kgo.Record{Topic: topic, Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: header, Value: headerValue}}}
			if nulls&8 != 0 {
				r.Timestamp = time.UnixMilli(ms)
			}
			return r
		}
		synctest.Test(t, func(t *testing.T) {
			broker := memkafka.New(t, memkafka.Topic(topic, 1), memkafka.Topic(commits, 1), memkafka.Topic("dead", 1))
			broker.ProduceRecords(record(commits), record(topic), &kgo.Record{Topic: topic, Value: []byte("1")})
			commitAs(t, broker, store, 0, 2)
			broker.ProduceRecords(record(commits))
			commitAs(t, broker, store, 0, 2)
			p, err := arroyo.NewProcessor(followingConsumer(t, broker, arroyo.CommitLogTopic(commits), nil, store),
				strategies.RunTask(strategies.JSON, strategies.Noop[any]()), quiet, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead"}))
			if err != nil {
				t.Fatal(err)
			}
			m := &member{p, memkafka.Start(t, p.Run)}
			broker.WaitCommitted(behind, topic, 2)
			m.shutDown(t)
			letters := broker.Records("dead")
			var v any
			if json.Unmarshal(value, &v) == nil {
				if len(letters) != 0 {
					t.Errorf("%q, which is valid, has a dead letter", value)
				}
				return
			}
			if len(letters) != 1 {
				t.Fatalf("%d dead letters, want 1", len(letters))
			}
			original, origin, err := arroyo.ReadDeadLetter(letters[0])
			if err != nil {
				t.Fatal(err)
			}
			as := func(r *kgo.Record) any {
				return []any{r.Key, r.Value, r.Headers[0].Key, r.Headers[0].Value, len(r.Headers)}
			}
			want := record(topic)
			if diff := cmp.Diff(as(broker.Records(topic)[0]), as(original)); diff != "" || string(original.Value) != string(want.Value) || origin.Offset != 0 {
				t.Errorf("the dead letter's original (-want +got):\n%s", diff)
			}
		})
	})
}
