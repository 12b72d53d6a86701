package strategytest

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Batch is messages that Messages made.
type Batch[T any] struct {
	rig   *arroyo.Rig
	epoch arroyo.Epoch
	msgs  []arroyo.Message[T]
	index map[*kgo.Record]int
}

// Verdict is the verdict on a message.
type Verdict struct {
	Message int // which one, as it was given to Messages
	Kind    arroyo.VerdictKind
	Err     error // why it was rejected
}

// Messages makes messages of one partition, without a broker, for a test of a
// function that settles them. Their records have the topic "messages" and the
// offsets from 0 on; payloads that are records are these records, as they are.
// A message that the function returns is an error of the test, unless Drain was
// called before.
//
// What needs a lane, as strategies do, is tested with Conformance or with an
// arroyo.Rig.
func Messages[T any](t testing.TB, payloads ...T) *Batch[T] {
	t.Helper()
	b := &Batch[T]{
		rig:   arroyo.NewRig(nobody{}),
		msgs:  make([]arroyo.Message[T], len(payloads)),
		index: make(map[*kgo.Record]int),
	}
	b.rig.Watch()
	b.epoch = b.rig.Assign(arroyo.Partition{Topic: "messages"})
	t.Cleanup(func() {
		if err := b.rig.Finish(); err != nil {
			t.Error(err)
		}
	})
	records := make([]*kgo.Record, len(payloads))
	for i, payload := range payloads {
		r, ok := any(payload).(*kgo.Record)
		if !ok {
			r = &kgo.Record{Topic: "messages", Offset: int64(i)}
		}
		records[i] = r
		b.index[r] = i
	}
	for i, m := range b.rig.Messages(b.epoch, records...) {
		b.msgs[i] = arroyo.With(m, payloads[i])
	}
	return b
}

// All returns the messages, in a slice of their own.
func (b *Batch[T]) All() []arroyo.Message[T] {
	return append([]arroyo.Message[T](nil), b.msgs...)
}

// Verdicts returns the verdicts so far, in the order in which they were given.
// It may be called from any goroutine.
func (b *Batch[T]) Verdicts() []Verdict {
	given := b.rig.Verdicts()
	verdicts := make([]Verdict, len(given))
	for i, v := range given {
		verdicts[i] = Verdict{b.index[v.Record], v.Kind, v.Err}
	}
	return verdicts
}

// Drain begins a drain of the messages' partition, as a rebalance does. They
// may be returned from here on.
func (b *Batch[T]) Drain() { b.rig.Drain(b.epoch) }

// Fence ends the messages' epoch, as a lost partition does. No verdict counts
// from here on.
func (b *Batch[T]) Fence() { b.rig.Fence(b.epoch) }

// nobody is a pipeline that nothing is submitted to.
type nobody struct{}

func (nobody) Submit(context.Context, []arroyo.Message[*kgo.Record]) error { return nil }
func (nobody) Flush(context.Context) error                                 { return nil }
func (nobody) Close(context.Context) error                                 { return nil }
