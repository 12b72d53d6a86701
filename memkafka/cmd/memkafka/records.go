package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// batch is how many records are produced at once.
const batch = 1000

// line is a record as the file has it.
type line struct {
	Topic     string            `json:"topic"`
	Partition *int32            `json:"partition"`
	Key       text              `json:"key"`
	Value     text              `json:"value"`
	Headers   map[string]string `json:"headers"`
	Timestamp timestamp         `json:"timestamp"`
}

// text is a JSON string as its text, null as nil, and other JSON as it is but for the space in it.
type text []byte

func (t *text) UnmarshalJSON(raw []byte) error {
	switch raw[0] {
	case 'n':
		*t = nil
		return nil
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		*t = text(s)
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err
	}
	*t = b.Bytes()
	return nil
}

// timestamp is RFC 3339, or milliseconds since 1970.
type timestamp struct{ time.Time }

func (t *timestamp) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' || raw[0] == 'n' {
		return json.Unmarshal(raw, &t.Time)
	}
	var ms int64
	if err := json.Unmarshal(raw, &ms); err != nil {
		return errors.New("a timestamp is RFC 3339, or whole milliseconds since 1970")
	}
	t.Time = time.UnixMilli(ms)
	return nil
}

// produce reads JSON lines and produces them. The topics, of which it gets the numbers of partitions, exist.
func produce(broker *memkafka.Broker, topics map[string]int, in io.Reader) (err error) {
	defer func() { // the broker's methods say by a panic what is wrong with a record
		if v := recover(); v != nil {
			failed, ok := v.(error)
			if !ok {
				panic(v)
			}
			err = failed
		}
	}()
	p := make(placer)
	for name, partitions := range topics {
		p[name] = &topic{partitions: partitions, byKey: kgo.StickyKeyPartitioner(nil).ForTopic(name)}
	}
	var records []*kgo.Record
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	for n := 1; ; n++ {
		var l line
		switch err := decoder.Decode(&l); {
		case errors.Is(err, io.EOF):
			broker.ProduceRecords(records...)
			return nil
		case err != nil:
			return fmt.Errorf("record %d: %w", n, err)
		}
		r := &kgo.Record{Topic: l.Topic, Key: l.Key, Value: l.Value, Timestamp: l.Timestamp.Time}
		for _, key := range slices.Sorted(maps.Keys(l.Headers)) {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(l.Headers[key])})
		}
		if err := p.place(r, l.Partition); err != nil {
			return fmt.Errorf("record %d: %w", n, err)
		}
		if records = append(records, r); len(records) == batch {
			broker.ProduceRecords(records...)
			records = records[:0]
		}
	}
}

// placer chooses partitions, by topic.
type placer map[string]*topic

type topic struct {
	partitions int
	next       int // for records without a key
	byKey      kgo.TopicPartitioner
}

// place gives the record the partition that it asks for, or the one where Kafka's own producers would send its key, or
// the next one.
func (p placer) place(r *kgo.Record, partition *int32) error {
	t := p[r.Topic]
	switch {
	case t == nil:
		return fmt.Errorf("topic %q is none of -topic", r.Topic)
	case partition != nil:
		if *partition < 0 || int(*partition) >= t.partitions {
			return fmt.Errorf("topic %q has no partition %d, only 0 to %d", r.Topic, *partition, t.partitions-1)
		}
		r.Partition = *partition
	case r.Key != nil:
		r.Partition = int32(t.byKey.Partition(r, t.partitions))
	default:
		r.Partition = int32(t.next)
		t.next = (t.next + 1) % t.partitions
	}
	return nil
}
