package strategies

import (
	"context"
	"encoding/json"
	"fmt"

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
