package main

import "sync"

// orderStore stands for a database. It is idempotent: an order that comes twice
// is stored once. That is the application's part in at-least-once processing.
type orderStore struct {
	mu     sync.Mutex
	orders map[string]Order // by ID
}

func newStore() *orderStore { return &orderStore{orders: make(map[string]Order)} }

// upsert stores the orders and returns how many of them are new.
func (s *orderStore) upsert(orders []Order) (added int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.orders)
	for _, o := range orders {
		s.orders[o.ID] = o
	}
	return len(s.orders) - before
}

func (s *orderStore) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.orders)
}
