package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Order is the value of a record, as JSON. The record's key is the customer, so
// a customer's orders are in one partition and stay in order.
type Order struct {
	ID       string    `json:"id"`
	Customer string    `json:"customer"`
	Items    []Item    `json:"items"`
	Currency string    `json:"currency"`
	Status   string    `json:"status"`
	Created  time.Time `json:"created"`
}

// Item is a line of an order.
type Item struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Price    int64  `json:"price"` // of one, in cents
}

const cancelled = "cancelled"

var (
	currencies = []string{"EUR", "USD", "GBP"}
	statuses   = []string{"placed", "placed", "placed", "paid", "paid", "paid", "paid", "shipped", "shipped", cancelled}
	catalogue  = []Item{
		{SKU: "TEA-GREEN-100", Price: 690}, {SKU: "TEA-BLACK-250", Price: 1150}, {SKU: "POT-CAST-IRON", Price: 8900},
		{SKU: "CUP-STONEWARE", Price: 1800}, {SKU: "FILTER-PAPER-80", Price: 450}, {SKU: "KETTLE-1L", Price: 5490},
	}
)

// newOrder makes up the n-th order of a run.
func newOrder(run string, n int) Order {
	customer := rand.IntN(60)
	items := make([]Item, 1+rand.IntN(3))
	for i := range items {
		items[i] = catalogue[rand.IntN(len(catalogue))]
		items[i].Quantity = 1 + rand.IntN(4)
	}
	return Order{
		ID:       fmt.Sprintf("%s-%05d", run, n),
		Customer: fmt.Sprintf("customer-%02d", customer),
		Items:    items,
		Currency: currencies[customer%len(currencies)],
		Status:   statuses[rand.IntN(len(statuses))],
		Created:  time.Now().UTC(),
	}
}

// producer is the shop that the orders come from.
type producer struct {
	kafka     *cluster
	orders    int
	perSecond int
	done      chan error

	produced, cancelled atomic.Int64
}

func newProducer(kafka *cluster, cfg config) *producer {
	return &producer{kafka: kafka, orders: cfg.orders, perSecond: cfg.perSecond, done: make(chan error, 1)}
}

// open begins to produce, until everything is produced or ctx ends. It calls
// failed if that goes wrong.
func (p *producer) open(ctx context.Context, failed func()) {
	go func() {
		err := p.produce(ctx)
		if err != nil {
			failed()
		}
		p.done <- err
	}()
}

// close waits until producing has ended.
func (p *producer) close() error { return <-p.done }

func (p *producer) produce(ctx context.Context) error {
	const tick = 50 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	run := strconv.FormatInt(time.Now().Unix(), 36) // tells the orders of several runs apart
	began := time.Now()
	for n := 0; n < p.orders; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		var records []*kgo.Record
		lost := 0
		for due := int(time.Since(began).Seconds() * float64(p.perSecond)); n < min(due, p.orders); n++ {
			order := newOrder(run, n)
			value, err := json.Marshal(order)
			if err != nil {
				return err
			}
			if order.Status == cancelled {
				lost++
			}
			records = append(records, &kgo.Record{Topic: p.kafka.topic, Key: []byte(order.Customer), Value: value})
		}
		if err := p.kafka.produce(ctx, records); err != nil {
			return fmt.Errorf("produce orders: %w", err)
		}
		p.produced.Add(int64(len(records)))
		p.cancelled.Add(int64(lost))
	}
	return nil
}
