package main

import (
	"context"
	"maps"

	"github.com/arroyo-go/arroyo"
)

// dedup is a strategy. It hands a message on unless one with the same ID was
// among the last n of its partition.
//
// What it remembers belongs to one assignment of a partition, an epoch. If the
// partition is taken away and comes back, it is read from the committed offset
// on, and what was handed on before, but not committed, has to be handed on
// again: a memory that outlives the assignment would lose it.
//
// It needs no lock, because a strategy is called from one goroutine at a time.
type dedup[T any] struct {
	arroyo.Forward[T] // hands on what it does not do itself
	n                 int
	id                func(arroyo.Message[T]) string
	memories          map[arroyo.Epoch]*memory[T]
}

func newDedup[T any](n int, id func(arroyo.Message[T]) string, next arroyo.Strategy[T]) arroyo.Strategy[T] {
	return &dedup[T]{arroyo.ForwardTo(next), n, id, make(map[arroyo.Epoch]*memory[T])}
}

func (s *dedup[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	first := make([]arroyo.Message[T], 0, len(msgs)) // msgs is the caller's
	for _, m := range msgs {
		if s.memory(m).isNew(s.id(m)) {
			first = append(first, m)
		} else {
			// Done with. If the first one is still on its way, nothing from
			// there on is committed before it has arrived.
			m.Ack()
		}
	}
	if len(first) == 0 {
		return nil
	}
	return s.Next.Submit(ctx, first)
}

// Flush comes when partitions are given up.
func (s *dedup[T]) Flush(ctx context.Context) error {
	if !arroyo.AtBound(ctx) { // it also comes when a larger batch than fits is held back
		given := arroyo.FlushOf(ctx)
		maps.DeleteFunc(s.memories, func(e arroyo.Epoch, _ *memory[T]) bool { return given(e) })
	}
	return s.Next.Flush(ctx)
}

// memory returns that of a message's epoch.
func (s *dedup[T]) memory(m arroyo.Message[T]) *memory[T] {
	e := m.Epoch()
	of := s.memories[e]
	if of == nil {
		// A partition that is lost does not say goodbye.
		maps.DeleteFunc(s.memories, func(_ arroyo.Epoch, of *memory[T]) bool { return of.member.Fenced() })
		of = &memory[T]{member: m, ids: make(map[string]bool), ring: make([]string, 0, s.n)}
		s.memories[e] = of
	}
	return of
}

// memory has the last IDs of an epoch.
type memory[T any] struct {
	member arroyo.Message[T] // one of the epoch
	ids    map[string]bool
	ring   []string // the same IDs, in the order in which they came
	oldest int      // in the ring, once it is full
}

// isNew remembers an ID, in place of the oldest one, unless it is known.
func (of *memory[T]) isNew(id string) bool {
	if of.ids[id] {
		return false
	}
	of.ids[id] = true
	if len(of.ring) < cap(of.ring) {
		of.ring = append(of.ring, id)
		return true
	}
	delete(of.ids, of.ring[of.oldest])
	of.ring[of.oldest] = id
	of.oldest = (of.oldest + 1) % len(of.ring)
	return true
}
