package arroyo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Vectors made by hand from the description of Sentry Arroyo's format.
func TestCommitLogFormat(t *testing.T) {
	at := time.Date(2023, 11, 14, 22, 13, 20, 123456000, time.UTC)
	for _, tt := range []struct {
		name       string
		key, value string
		headers    []kgo.RecordHeader
		want       arroyo.CommitLogEntry
		written    bool // what we write for it
	}{
		{"as it is", "events:3:storage", `{"offset":42,"orig_message_ts":1700000000.123456,"received_p99":null}`, nil,
			arroyo.CommitLogEntry{Group: "storage", Partition: arroyo.Partition{Topic: "events", Number: 3}, Offset: 42, Timestamp: at}, true},
		{"with a percentile", "events:0:storage", `{"offset":0,"orig_message_ts":1700000000.123456,"received_p99":1699999999.5}`, nil,
			arroyo.CommitLogEntry{Group: "storage", Partition: arroyo.Partition{Topic: "events"}, Timestamp: at, ReceivedP99: 1699999999.5}, true},
		{"as Python spaces it", "events:3:storage", `{"offset": 42, "orig_message_ts": 1700000000.123456, "received_p99": null}`, nil,
			arroyo.CommitLogEntry{Group: "storage", Partition: arroyo.Partition{Topic: "events", Number: 3}, Offset: 42, Timestamp: at}, false},
		{"a group with colons", "events:3:storage:eu:1", `{"offset":42,"orig_message_ts":0,"received_p99":null}`, nil,
			arroyo.CommitLogEntry{Group: "storage:eu:1", Partition: arroyo.Partition{Topic: "events", Number: 3}, Offset: 42}, true},
		{"a topic with a colon", "eu:events:3:storage", `{"offset":42,"orig_message_ts":0,"received_p99":null}`, nil,
			arroyo.CommitLogEntry{Group: "storage", Partition: arroyo.Partition{Topic: "eu:events", Number: 3}, Offset: 42}, true},
		{"the old format", "events:3:storage", "42", []kgo.RecordHeader{{Key: "orig_message_ts", Value: []byte("2023-11-14T22:13:20.123456Z")}},
			arroyo.CommitLogEntry{Group: "storage", Partition: arroyo.Partition{Topic: "events", Number: 3}, Offset: 42, Timestamp: at}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &kgo.Record{Key: []byte(tt.key), Value: []byte(tt.value), Headers: tt.headers}
			got, err := arroyo.ReadCommitLogEntry(r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("read (-want +got):\n%s", diff)
			}
			if !tt.written {
				return
			}
			w := tt.want.Record("commits")
			if string(w.Key) != tt.key || string(w.Value) != tt.value || w.Topic != "commits" || len(w.Headers) != 0 {
				t.Errorf("written: %s %s to %q", w.Key, w.Value, w.Topic)
			}
		})
	}
	for name, r := range map[string]*kgo.Record{
		"no key":            {Value: []byte("42")},
		"a key of two":      {Key: []byte("events:3"), Value: []byte("42")},
		"no partition":      {Key: []byte("events:x:storage"), Value: []byte("42")},
		"no group":          {Key: []byte("events:3:"), Value: []byte("42")},
		"no topic":          {Key: []byte(":3:storage"), Value: []byte("42")},
		"a negative offset": {Key: []byte("events:3:storage"), Value: []byte("-1")},
		"no offset":         {Key: []byte("events:3:storage"), Value: []byte(`{}`)},
		"a null value":      {Key: []byte("events:3:storage")},
		"no JSON":           {Key: []byte("events:3:storage"), Value: []byte("hello")},
		"a huge partition":  {Key: []byte("events:3000000000:storage"), Value: []byte("42")},
	} {
		if e, err := arroyo.ReadCommitLogEntry(r); !errors.Is(err, arroyo.ErrNotACommit) {
			t.Errorf("%s: %+v, %v; want ErrNotACommit", name, e, err)
		}
	}
}

func FuzzReadCommitLogEntry(f *testing.F) {
	f.Add("events:3:storage", `{"offset":42,"orig_message_ts":1700000000.123456,"received_p99":null}`)
	f.Add("events:3:storage", "42")
	f.Add("a:b:3:4:c", `{"offset":9223372036854775807,"orig_message_ts":1e300,"received_p99":-1}`)
	f.Fuzz(func(t *testing.T, key, value string) {
		e, err := arroyo.ReadCommitLogEntry(&kgo.Record{Key: []byte(key), Value: []byte(value)})
		if err != nil {
			if !errors.Is(err, arroyo.ErrNotACommit) {
				t.Errorf("%v", err)
			}
			return
		}
		again, err := arroyo.ReadCommitLogEntry(e.Record("commits"))
		if err != nil || again.Partition != e.Partition || again.Group != e.Group || again.Offset != e.Offset {
			t.Errorf("%+v was written and read as %+v, %v", e, again, err)
		}
	})
}
