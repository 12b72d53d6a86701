package arroyo

import (
	"bytes"
	"math/bits"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// RecycleRecords lets fetched records use the memory of records that are done
// with: the garbage collector, which is a good part of what reading costs, has
// next to nothing to do. It is safe if nothing of a record is used once the
// record is settled: not the *kgo.Record, and not its key, value or headers,
// nor slices of them. What is kept longer has to be copied: a string made of a
// value is a copy, and so is what JSON decodes into. A record is settled when
// it, or the last message that was made of it, has its verdict, or for a
// rejected one when its dead letter is delivered.
//
// A Processor gives back what is settled. What a lost or returned message came
// from is left to the garbage collector, since user code may still work on it.
// Who polls the consumer's events calls kgo.Record.Recycle for each record that
// is done with; those for which it is not called are garbage as ever.
//
// Under the race detector the bytes of a record that was given back are
// overwritten with 0xDB, so that a test which uses them fails, by what it reads
// or by a report of the detector.
//
// With it a CommitLogEntry's Timestamp may be that of a record up to 64 before
// the last one, and pools given by kgo.WithPools are not used.
func RecycleRecords() ConsumerOption {
	return func(c *consumerConfig) { c.recycle = true }
}

// recycle gives records back to the pools that they came from.
func recycle(records []*kgo.Record) {
	for _, r := range records {
		poison(r)
		r.Recycle()
	}
}

// copyOf returns a record that shares no memory with r.
func copyOf(r *kgo.Record) *kgo.Record {
	c := *r
	c.Context = nil // by which kgo knows a record of a pool
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = make([]kgo.RecordHeader, len(r.Headers))
	for i, h := range r.Headers {
		c.Headers[i] = kgo.RecordHeader{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	return &c
}

// pools are what kgo fetches into and Recycle puts back (kgo.WithPools).
type pools struct {
	records pool[kgo.Record]
	bytes   pool[byte]
}

func (p *pools) GetRecords(n int) []kgo.Record   { return p.records.get(n, 0) }
func (p *pools) PutRecords(records []kgo.Record) { p.records.put(records) }

// GetDecompressBytes guesses how large the batch will be. kgo clears all of a
// slice that it puts back, so one that is much too large is not free.
func (p *pools) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	const guess, larger = 4, 3
	return p.bytes.get(guess*len(compressed), larger)
}
func (p *pools) PutDecompressBytes(b []byte) { p.bytes.put(b) }

// pool keeps slices by their capacities: class i has those from 2^i on.
type pool[T any] struct{ classes [bits.UintSize]sync.Pool }

// get returns a slice with a capacity of at least n, also one that is larger by
// some classes.
func (p *pool[T]) get(n, larger int) []T {
	smallest := bits.Len(uint(max(n, 1) - 1))
	for i := range min(larger+1, len(p.classes)-smallest) {
		if s, ok := p.classes[smallest+i].Get().(*[]T); ok {
			return *s
		}
	}
	return make([]T, 0, 1<<smallest)
}

func (p *pool[T]) put(s []T) {
	if cap(s) > 0 {
		p.classes[bits.Len(uint(cap(s)))-1].Put(&s)
	}
}
