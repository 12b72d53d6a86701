package main

import (
	"context"
	"sync/atomic"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

// count counts a job's records, for any number of goroutines, and measures the
// process until the last one.
type count struct {
	job      job
	meter    *bench.Meter
	records  atomic.Int64
	sum      atomic.Uint64
	complete chan struct{} // is closed at the last record
	used     bench.Usage   // is there then
}

func startCount(j job) *count {
	return &count{job: j, meter: bench.StartMeter(j.source()), complete: make(chan struct{})}
}

// do does the work on a record.
func (c *count) do(value []byte) {
	c.sum.Add(c.job.work(value))
	switch c.records.Add(1) {
	case 1:
		c.meter.First()
	case int64(c.job.Layout.Records):
		c.used = c.meter.Stop()
		close(c.complete)
	}
}

func (c *count) done() bool {
	select {
	case <-c.complete:
		return true
	default:
		return false
	}
}

// wait returns nil when all records are there.
func (c *count) wait(ctx context.Context) error {
	select {
	case <-c.complete:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *count) result(err error) (bench.Tally, bench.Usage, error) {
	tally := bench.Tally{Records: int(c.records.Load()), Sum: c.sum.Load()}
	if !c.done() {
		return tally, bench.Usage{}, err
	}
	return tally, c.used, err
}
