package bench

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// Topic is what readers read; Out and Dead are for what they write.
	Topic = "events"
	Out   = "out"
	Dead  = "dead"
)

// Layout is what the topic has.
type Layout struct {
	Brokers    int // of the cluster, in one process; 0: one
	Records    int
	Partitions int
	ValueSize  int    // bytes of a value, at least 16
	Codec      string // of batches: none, lz4 or zstd
	Batch      int    // records of a batch, at most
	Rate       int    // records a second that it gets once readers have joined; 0: it has all of them
}

// Large is a layout of eight partitions, values of 100 bytes, and batches of
// about the mebibyte that one may have.
func Large(records int) Layout {
	return Layout{Records: records, Partitions: 8}
}

// maxBatch is below Kafka's default of 1 MiB for a batch.
const maxBatch = 1_000_000 // bytes

func (l Layout) withDefaults() Layout {
	if l.ValueSize == 0 {
		l.ValueSize = 100
	}
	if l.Codec == "" {
		l.Codec = "none"
	}
	if l.Batch == 0 {
		l.Batch = maxBatch
	}
	l.ValueSize = max(stampSize, l.ValueSize)
	l.Batch = max(1, min(l.Batch, maxBatch/(l.ValueSize+25), l.Records/l.Partitions))
	return l
}

func (l Layout) codec() (kgo.CompressionCodec, error) {
	switch l.Codec {
	case "none":
		return kgo.NoCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("the codec is %q, not none, lz4 or zstd", l.Codec)
}

func (l Layout) String() string {
	text, _ := json.Marshal(l) // of numbers and a string
	return string(text)
}

func parseLayout(text string) (l Layout, err error) {
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return l, fmt.Errorf("%s is not the layout of a topic: %w", brokerEnv, err)
	}
	return l, nil
}

// record returns the one with a number. Its value begins with the number; the
// rest can be compressed to about a half.
func (l Layout) record(n int) *kgo.Record {
	const letters = "0123456789abcdef"
	value := make([]byte, l.ValueSize)
	binary.BigEndian.PutUint64(value, uint64(n))
	x := uint64(n)*0x9E3779B97F4A7C15 + 1
	for i := 8; i < len(value); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		value[i] = letters[x>>60]
	}
	return &kgo.Record{Value: value, Partition: int32(n / l.Batch % l.Partitions)}
}
