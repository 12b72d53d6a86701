package memkafka_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
)

func TestProduceJSON(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		type event struct {
			ID   int      `json:"id"`
			Tags []string `json:"tags,omitempty"`
		}
		broker.ProduceJSON("events")
		broker.ProduceJSON("events", event{ID: 1}, map[string]any{"b": 2, "a": nil}, "text")
		broker.ProduceJSON("events", nil, json.RawMessage(`{ "raw": true }`))
		got := values(broker.Records("events"))
		want := []string{`{"id":1}`, `"text"`, `{"raw":true}`, `{"a":null,"b":2}`, `null`}
		if !slices.Equal(got, want) {
			t.Errorf("the topic has %q, not %q", got, want)
		}
	})
}
