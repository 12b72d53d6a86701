package main

import (
	"fmt"
	"testing"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// Everything that a strategy promises: that each message is handed on or settled
// once, in order, that a flush leaves nothing behind, that what is read again
// after a partition was lost is no duplicate, and more.
func TestDedupKeepsTheContract(t *testing.T) {
	strategytest.Conformance(t,
		func(next arroyo.Strategy[string]) arroyo.Strategy[string] {
			return newDedup(100, func(m arroyo.Message[string]) string { return m.Payload }, next)
		},
		func(i int) string { return fmt.Sprint("ID ", i/6) }) // of the three partitions of the suite, each ID comes twice in each
}
