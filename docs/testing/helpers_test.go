package orders

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/memkafka"
)

// start runs the consumer until stop is called or the test ends.
func start(t *testing.T, broker *memkafka.Broker, insert Insert, opts ...kgo.Opt) (stop func() error) {
	client := append(broker.ClientOptions(), opts...)
	return memkafka.Start(t, func(ctx context.Context) error { return Run(ctx, insert, client...) })
}

// place produces paid orders with the IDs from first to last.
func place(broker *memkafka.Broker, first, last int) {
	var orders []any
	for id := first; id <= last; id++ {
		orders = append(orders, Order{ID: id, Paid: true})
	}
	broker.ProduceJSON("orders", orders...)
}

// table is the database of a test.
type table struct {
	takes time.Duration // what an insert takes

	mu   sync.Mutex
	rows map[int]int // by ID, how often the order was inserted
}

func (tb *table) insert(ctx context.Context, orders []Order) error {
	select {
	case <-time.After(tb.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	if tb.rows == nil {
		tb.rows = make(map[int]int)
	}
	for _, o := range orders {
		tb.rows[o.ID]++
	}
	return nil
}

// expectOnce checks that the orders from 1 to last are there, each once.
func (tb *table) expectOnce(t *testing.T, last int) {
	t.Helper()
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for id := 1; id <= last; id++ {
		if n := tb.rows[id]; n != 1 {
			t.Errorf("order %d was inserted %d times, want once", id, n)
		}
	}
}
