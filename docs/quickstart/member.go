package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/arroyo-go/arroyo"
)

// member is a member of the consumer group. Usually it would be a process of
// its own; here there are two in one.
type member struct {
	name     string
	store    *orderStore
	out      *printer
	log      *slog.Logger
	held     map[int32]bool // partitions
	assigned chan struct{}  // closed when it has got partitions
	stop     func()
	done     chan error

	stored, batches, filtered, duplicates atomic.Int64
}

func newMember(name string, store *orderStore, out *printer) *member {
	m := &member{name: name, store: store, out: out, held: make(map[int32]bool), assigned: make(chan struct{}), done: make(chan error, 1)}
	m.log = slog.New(&warnings{m})
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

// A member is a hook of its processor, which calls these three, one at a time.

func (m *member) OnAssigned(epochs []arroyo.Epoch) {
	m.moved("got", epochs, true)
	select {
	case <-m.assigned:
	default:
		close(m.assigned)
	}
}

func (m *member) OnRevoked(epochs []arroyo.Epoch, _ time.Duration) {
	m.moved("gave up", epochs, false)
}

func (m *member) OnLost(epochs []arroyo.Epoch, _ error) { m.moved("lost", epochs, false) }

func (m *member) moved(verb string, epochs []arroyo.Epoch, has bool) {
	var partitions []int32
	for _, e := range epochs {
		partitions = append(partitions, e.Number)
		if has {
			m.held[e.Number] = true
		} else {
			delete(m.held, e.Number)
		}
	}
	slices.Sort(partitions)
	now := ""
	if held := slices.Sorted(maps.Keys(m.held)); !slices.Equal(held, partitions) {
		now = ", has " + list(held) + " now"
	}
	m.out.line("%s %s partitions %s%s", m.name, verb, list(partitions), now)
}

// leave makes the member leave the group and waits until it has.
func (m *member) leave() error {
	m.stop()
	return <-m.done
}
