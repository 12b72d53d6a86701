package main

import (
	"context"
	"fmt"
)

// report is how it all ended.
type report struct {
	store               *orderStore
	members             []*member
	produced, cancelled int64
	offsets             []partitionOffsets
}

func newReport(kafka *cluster, store *orderStore, shop *producer, members ...*member) (*report, error) {
	// Also when the program was interrupted, so not under its context.
	offsets, err := kafka.offsets(context.Background())
	return &report{
		store:     store,
		members:   members,
		produced:  shop.produced.Load(),
		cancelled: shop.cancelled.Load(),
		offsets:   offsets,
	}, err
}

func (p *printer) report(r *report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var processed, duplicates int64
	fmt.Fprintf(p.w, "\nproduced  %5d orders, %d of them cancelled\n", r.produced, r.cancelled)
	for _, m := range r.members {
		fmt.Fprintf(p.w, "%s  %5d orders stored in %d batches, %d filtered out\n",
			m.name, m.stored.Load(), m.batches.Load(), m.filtered.Load())
		processed += m.stored.Load() + m.filtered.Load()
		duplicates += m.duplicates.Load()
	}
	fmt.Fprintf(p.w, "store     %5d orders; %d came twice\n", r.store.len(), duplicates)
	if earlier := processed - r.produced; earlier > 0 {
		fmt.Fprintf(p.w, "          %5d of the orders were left by an earlier run\n", earlier)
	}
	if len(r.offsets) == 0 {
		return // the broker did not tell
	}
	fmt.Fprintf(p.w, "\npartition  committed  log end\n")
	for _, o := range r.offsets {
		committed := "none"
		if o.committed >= 0 {
			committed = fmt.Sprint(o.committed)
		}
		fmt.Fprintf(p.w, "%9d  %9s  %7d", o.partition, committed, o.end)
		if left := o.end - max(o.committed, 0); left > 0 {
			fmt.Fprintf(p.w, "  %d left for the group's next member", left)
		}
		fmt.Fprintln(p.w)
	}
}
