package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
)

// member is a member of the consumer group. Usually it would be a process of
// its own; here there are two in one.
type member struct {
	name     string
	store    *orderStore
	out      *printer
	log      *slog.Logger
	assigned chan struct{} // closed when it has got partitions
	stop     func()
	done     chan error

	stored, batches, filtered, duplicates atomic.Int64
}

func newMember(name string, store *orderStore, out *printer) *member {
	m := &member{name: name, store: store, out: out, assigned: make(chan struct{}), done: make(chan error, 1)}
	m.log = slog.New(&events{member: m, held: make(map[int64]bool)})
	return m
}

// join starts processing as a member of the group, until ctx ends or leave is
// called. It calls failed if processing fails.
func (m *member) join(ctx context.Context, kafka *cluster, failed func()) {
	ctx, cancel := context.WithCancel(ctx)
	m.stop = func() {
		if ctx.Err() == nil {
			m.out.line("%s leaves the group", m.name)
		}
		cancel()
	}
	if ctx.Err() != nil {
		m.done <- nil // the story is over already
		return
	}
	m.out.line("%s joins group %q", m.name, kafka.group)
	go func() {
		err := process(ctx, kafka, m)
		if err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
			failed()
		}
		m.done <- err
	}()
}

// gotPartitions is called for each partition that is assigned, one at a time.
func (m *member) gotPartitions() {
	select {
	case <-m.assigned:
	default:
		close(m.assigned)
	}
}

// leave makes the member leave the group and waits until it has.
func (m *member) leave() error {
	m.stop()
	return <-m.done
}
