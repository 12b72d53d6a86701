package memkafka

import (
	"encoding/json"
)

// ProduceJSON appends the values to the topic, each as the JSON text that [json.Marshal] makes of it, and otherwise as
// [Broker.Produce] does: records without a key, around the partitions. What is JSON already goes in as a
// [json.RawMessage]. A nil becomes the text null, which is a value; for a record whose value is null, which compaction
// takes for a deletion, use [Broker.ProduceRecords].
//
// It fails, before anything is appended, if a value cannot be marshaled or the topic does not exist.
func (b *Broker) ProduceJSON(topic string, values ...any) {
	b.t.Helper()
	texts := make([][]byte, len(values))
	for i, v := range values {
		text, err := json.Marshal(v)
		if err != nil {
			b.fail("produce: topic %q: value %d: %w", topic, i, err)
		}
		texts[i] = text
	}
	if err := b.produceValues(b.sender, topic, texts); err != nil {
		b.fail("produce: %w", err)
	}
}
