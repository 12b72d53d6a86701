package arroyo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// CommitLogEntry is one commit, as a commit log tells of it: a topic to which a
// group's members write what they have committed, so that others can follow
// (see Synchronize). The format is that of Sentry's Arroyo: the key is
// "topic:partition:group", the value JSON.
type CommitLogEntry struct {
	Group     string
	Partition Partition
	Offset    int64 // that was committed: of the next record to process
	// Timestamp is that of the last record below Offset; zero if unknown.
	Timestamp time.Time
	// ReceivedP99 is when the slowest hundredth of what was committed had been
	// received, in seconds since 1970; 0 if unknown. Arroyo does not write it.
	ReceivedP99 float64
}

type commitLogValue struct {
	Offset      int64    `json:"offset"`
	Timestamp   *float64 `json:"orig_message_ts"` // seconds since 1970
	ReceivedP99 *float64 `json:"received_p99"`
}

// Record returns the entry as a record for a commit-log topic.
func (e CommitLogEntry) Record(topic string) *kgo.Record {
	v := commitLogValue{Offset: e.Offset}
	ts := 0.0
	if !e.Timestamp.IsZero() {
		ts = float64(e.Timestamp.UnixMicro()) / 1e6
	}
	v.Timestamp = &ts // Sentry's readers want a number
	if e.ReceivedP99 != 0 {
		v.ReceivedP99 = &e.ReceivedP99
	}
	value, err := json.Marshal(v)
	if err != nil { // of numbers that are none
		value = fmt.Appendf(nil, `{"offset":%d,"orig_message_ts":0,"received_p99":null}`, e.Offset)
	}
	return &kgo.Record{
		Topic: topic,
		Key:   fmt.Appendf(nil, "%s:%d:%s", e.Partition.Topic, e.Partition.Number, e.Group),
		Value: value,
	}
}

// ErrNotACommit says that a record is not an entry of a commit log.
var ErrNotACommit = errors.New("arroyo: the record is not an entry of a commit log")

// legacyTime is the header of entries that old versions of Sentry's Arroyo
// wrote, whose value is the offset alone.
const legacyTime = "2006-01-02T15:04:05.000000Z"

// ReadCommitLogEntry reads an entry, also one of the old format of Sentry's
// Arroyo. It returns an error that wraps ErrNotACommit.
func ReadCommitLogEntry(r *kgo.Record) (e CommitLogEntry, err error) {
	e.Partition, e.Group, err = readCommitLogKey(string(r.Key))
	if err != nil {
		return CommitLogEntry{}, err
	}
	if offset, err := strconv.ParseInt(string(r.Value), 10, 64); err == nil {
		e.Offset = offset
		for _, h := range r.Headers {
			if h.Key == "orig_message_ts" {
				if t, err := time.Parse(legacyTime, string(h.Value)); err == nil {
					e.Timestamp = t
				}
			}
		}
	} else {
		var v commitLogValue
		v.Offset = -1
		if err := json.NewDecoder(bytes.NewReader(r.Value)).Decode(&v); err != nil {
			return CommitLogEntry{}, fmt.Errorf("%w: its value: %w", ErrNotACommit, err)
		}
		e.Offset = v.Offset
		if v.Timestamp != nil && *v.Timestamp > 0 && *v.Timestamp < math.MaxInt64/1e7 {
			e.Timestamp = time.UnixMicro(int64(math.Round(*v.Timestamp * 1e6))).UTC()
		}
		if v.ReceivedP99 != nil {
			e.ReceivedP99 = *v.ReceivedP99
		}
	}
	if e.Offset < 0 {
		return CommitLogEntry{}, fmt.Errorf("%w: it has no offset", ErrNotACommit)
	}
	return e, nil
}

// readCommitLogKey takes the first number between two colons for the partition:
// names of topics have no colons, but those of groups may.
func readCommitLogKey(key string) (p Partition, group string, err error) {
	for at := 0; ; {
		i := strings.IndexByte(key[at:], ':')
		if i < 0 {
			return Partition{}, "", fmt.Errorf("%w: its key is %q, not topic:partition:group", ErrNotACommit, key)
		}
		at += i + 1
		number, rest, ok := strings.Cut(key[at:], ":")
		n, bad := strconv.ParseInt(number, 10, 32)
		if ok && bad == nil && n >= 0 && at > 1 && rest != "" {
			return Partition{key[:at-1], int32(n)}, rest, nil
		}
	}
}
