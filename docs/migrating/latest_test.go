package migrating

import (
	"testing"
	"time"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

func TestLatestKeepsTheContract(t *testing.T) {
	strategytest.Conformance(t,
		func(next arroyo.Strategy[Event]) arroyo.Strategy[Event] { return newLatest(10*time.Second, next) },
		func(i int) Event { return Event{User: int64(i % 7)} },
		strategytest.Unordered()) // users come in any order
}
