package arroyo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The headers that a dead letter has behind those of its original. The first
// two are those of Sentry's Arroyo.
const (
	headerPartition = "original_partition"
	headerOffset    = "original_offset"
	headerTopic     = "original_topic"
	headerTimestamp = "original_timestamp" // milliseconds since 1970
	headerGroup     = "rejected_by_group"
	headerTime      = "rejected_at" // milliseconds since 1970
	headerStep      = "rejected_in_step"
	headerReason    = "rejected_because"
)

var letterHeaders = []string{headerPartition, headerOffset, headerTopic, headerTimestamp, headerGroup, headerTime, headerStep, headerReason}

// maxReason bounds the header that says why, in bytes.
const maxReason = 4096

// DeadLetterOrigin says where a dead letter came from, and why it is one.
type DeadLetterOrigin struct {
	Partition Partition // the topic is empty in letters of Sentry's Arroyo
	Offset    int64
	Timestamp time.Time // of the original

	Group  string    // that rejected it
	Time   time.Time // when
	Step   string    // in which step
	Reason string    // why
}

// newLetter makes a dead letter. It has the original's key, value and headers,
// which it shares, and a timestamp of its own, so that a topic that keeps its
// records for a while does not drop it at once.
func newLetter(topic string, r *kgo.Record, o DeadLetterOrigin) *kgo.Record {
	text := map[string]string{
		headerPartition: strconv.Itoa(int(o.Partition.Number)),
		headerOffset:    strconv.FormatInt(o.Offset, 10),
		headerTopic:     o.Partition.Topic,
		headerTimestamp: strconv.FormatInt(o.Timestamp.UnixMilli(), 10),
		headerGroup:     o.Group,
		headerTime:      strconv.FormatInt(o.Time.UnixMilli(), 10),
		headerStep:      o.Step,
		headerReason:    shortened(o.Reason),
	}
	headers := make([]kgo.RecordHeader, 0, len(r.Headers)+len(letterHeaders))
	headers = append(headers, r.Headers...)
	for _, key := range letterHeaders {
		headers = append(headers, kgo.RecordHeader{Key: key, Value: []byte(text[key])})
	}
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: headers}
}

// reasonOf is an error's text without what the other headers say. It is fmt
// that asks for it, because that survives an Error method which panics.
func reasonOf(err error) string {
	if invalid, ok := err.(*InvalidError); ok && invalid.Err != nil {
		err = invalid.Err
	}
	if err == nil {
		return ""
	}
	return fmt.Sprint(err)
}

func shortened(reason string) string {
	if len(reason) <= maxReason {
		return reason
	}
	end := maxReason
	for end > maxReason-utf8.UTFMax && !utf8.RuneStart(reason[end]) {
		end--
	}
	return reason[:end]
}

// ErrNotADeadLetter says that a record has not the headers of one.
var ErrNotADeadLetter = errors.New("arroyo: the record is not a dead letter")

// ReadDeadLetter returns the original of a dead letter, ready to be produced to
// the topic that it came from, and where it came from and why. It also reads
// those that Sentry's Arroyo wrote, which do not tell the topic. A client with
// kgo.RecordPartitioner(kgo.ManualPartitioner()) puts the original into the
// partition that it was in; others choose one as ever.
//
// The original shares the key, the value and the headers with r. It returns an
// error that wraps ErrNotADeadLetter.
func ReadDeadLetter(r *kgo.Record) (original *kgo.Record, origin DeadLetterOrigin, err error) {
	headers, text := splitHeaders(r.Headers)
	number := func(key string, bits int) int64 {
		n, bad := strconv.ParseInt(text[key], 10, bits)
		if bad != nil && err == nil {
			err = fmt.Errorf("%w: header %s: %w", ErrNotADeadLetter, key, bad)
		}
		return n
	}
	origin.Partition.Number = int32(number(headerPartition, 32))
	origin.Offset = number(headerOffset, 64)
	if _, ours := text[headerTopic]; ours {
		origin.Partition.Topic = text[headerTopic]
		origin.Timestamp = time.UnixMilli(number(headerTimestamp, 64))
		origin.Time = time.UnixMilli(number(headerTime, 64))
		origin.Group = text[headerGroup]
		origin.Step = text[headerStep]
		origin.Reason = text[headerReason]
	}
	if err != nil {
		return nil, DeadLetterOrigin{}, err
	}
	return &kgo.Record{
		Topic:     origin.Partition.Topic,
		Partition: origin.Partition.Number,
		Key:       r.Key,
		Value:     r.Value,
		Headers:   headers,
		Timestamp: origin.Timestamp,
	}, origin, nil
}

// splitHeaders tells the original's headers from those that were added behind
// them. The original may have some of the same names: it may itself have been
// a dead letter once.
func splitHeaders(all []kgo.RecordHeader) (original []kgo.RecordHeader, added map[string]string) {
	for _, names := range [][]string{letterHeaders, letterHeaders[:2]} {
		from := len(all) - len(names)
		if from < 0 || !slices.EqualFunc(all[from:], names, func(h kgo.RecordHeader, name string) bool { return h.Key == name }) {
			continue
		}
		added = make(map[string]string, len(names))
		for _, h := range all[from:] {
			added[h.Key] = string(h.Value)
		}
		return all[:from:from], added
	}
	return all, nil
}
