package strategies

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// JSON is a task for RunTask that decodes a record's value. What does not
// decode, a null value included, is invalid.
func JSON[T any](_ context.Context, m arroyo.Message[*kgo.Record]) (T, error) {
	var v T
	if err := json.Unmarshal(m.Payload.Value, &v); err != nil {
		return v, arroyo.Invalid(fmt.Errorf("decode JSON: %w", err))
	}
	return v, nil
}

// Plain makes a task of a function that knows nothing of messages: it is called
// with the payload. Give the step a Name; otherwise it has that of this
// function.
func Plain[In, Out any](f func(context.Context, In) (Out, error)) func(context.Context, arroyo.Message[In]) (Out, error) {
	require("Plain", "the function is nil", f != nil)
	return func(ctx context.Context, m arroyo.Message[In]) (Out, error) { return f(ctx, m.Payload) }
}

// RecordKey returns the key of the message's record, as text: the usual key of
// RunTaskByKey. It is empty for a null key and for a message without a record.
func RecordKey[T any](m arroyo.Message[T]) string {
	if r := m.Record(); r != nil {
		return string(r.Key)
	}
	return ""
}

// Outgoing returns a new record for Produce: with the topic and value given,
// and with the key, the headers and the timestamp of the message's record. A
// nil value stays null. The headers' slice is a new one; their bytes, and the
// key's, are those of the message's record, so they must not be changed.
func Outgoing[T any](m arroyo.Message[T], topic string, value []byte) *kgo.Record {
	out := &kgo.Record{Topic: topic, Value: value}
	if r := m.Record(); r != nil {
		out.Key, out.Headers, out.Timestamp = r.Key, slices.Clone(r.Headers), r.Timestamp
	}
	return out
}
