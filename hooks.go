package arroyo

import (
	"fmt"
	"runtime/debug"
	"time"
)

// Hooks are for metrics and traces. A hook is a value that implements any of
// the Hook interfaces; the processor calls those that it has. Hooks are called
// per event or batch, never per record, most of them on the goroutine of the
// run loop: they must be quick and must not block. They may call Status. What
// they are given is theirs to keep. A hook that panics ends the run.
//
// An epoch is told of from OnAssigned until OnRevoked or OnLost, which also ends
// its pause and its stall. Only OnSubmitted may come later, of a call that took
// longer than its drain. If Run returns an error, partitions that it held then
// may have been told of no end.
func Hooks(hs ...any) ProcessorOption {
	return func(c *processorConfig) { c.hooks = append(c.hooks, hs...) }
}

// HookAssigned is told of partitions that were assigned.
type HookAssigned interface{ OnAssigned(epochs []Epoch) }

// HookRevoked is told of partitions that were given up in order: drained and
// committed, which took so long.
type HookRevoked interface {
	OnRevoked(epochs []Epoch, took time.Duration)
}

// HookLost is told of partitions that are no longer ours, and why.
type HookLost interface {
	OnLost(epochs []Epoch, reason error)
}

// HookFetched is told of each slice of records that was taken from kgo. Bytes
// are what they take in memory, as MaxInFlightBytes counts it.
type HookFetched interface {
	OnFetched(e Epoch, records, bytes int)
}

// HookSubmitted is told how long each Submit of the first step took, and of how
// many records. It is called on the goroutine that runs the pipeline; with a
// partitioned processor there are several.
type HookSubmitted interface {
	OnSubmitted(e Epoch, records int, took time.Duration)
}

// HookCommitted is told of each commit, with its outcome as Consumer.Commit
// returns it. The offsets are those of epochs that are not over yet: there may
// be none.
type HookCommitted interface {
	OnCommitted(offsets map[Epoch]int64, took time.Duration, err error)
}

// HookPaused is told when a partition of a partitioned processor is paused
// because its queue is full, and when it flows again.
type HookPaused interface {
	OnPaused(e Epoch, paused bool)
}

// HookStalled is told when a partition's oldest record that is not settled is
// older than StallAfter, and when it is settled after all.
type HookStalled interface {
	OnStalled(p PartitionStatus, stalled bool)
}

type hooks []any

// tell calls hooks.
func (r *run) tell(f func(hooks)) {
	if len(r.config.hooks) == 0 {
		return
	}
	r.letGo(func() { r.guardHook(func() { f(r.config.hooks) }) })
}

// guardHook ends the run with a hook's panic.
func (r *run) guardHook(f func()) {
	defer func() {
		if v := recover(); v != nil {
			err := fmt.Errorf("arroyo: in a hook: %w", &PanicError{v, debug.Stack()})
			r.post(func() { r.fail(err) })
		}
	}()
	f()
}

func (hs hooks) check() error {
	for _, h := range hs {
		switch h.(type) {
		case HookAssigned, HookRevoked, HookLost, HookFetched, HookSubmitted, HookCommitted, HookPaused, HookStalled:
		default:
			return &OptionError{"Hooks", fmt.Sprintf("%T has none of the methods that a hook can have", h)}
		}
	}
	return nil
}

// each calls f for those hooks that have the method.
func each[H any](hs hooks, f func(H)) {
	for _, h := range hs {
		if h, ok := h.(H); ok {
			f(h)
		}
	}
}

func (hs hooks) assigned(epochs []Epoch) {
	each(hs, func(h HookAssigned) { h.OnAssigned(epochs) })
}

func (hs hooks) revoked(epochs []Epoch, took time.Duration) {
	if len(epochs) > 0 {
		each(hs, func(h HookRevoked) { h.OnRevoked(epochs, took) })
	}
}

func (hs hooks) lost(epochs []Epoch, reason error) {
	if len(epochs) > 0 {
		each(hs, func(h HookLost) { h.OnLost(epochs, reason) })
	}
}

func (hs hooks) fetched(e Epoch, spans []span) {
	if len(hs) == 0 {
		return
	}
	records, bytes := 0, 0
	for i := range spans {
		records += len(spans[i].records)
		bytes += spans[i].bytes
	}
	each(hs, func(h HookFetched) { h.OnFetched(e, records, bytes) })
}

// submitted returns nil if nobody wants to know.
func (r *run) submitted() (f func(Epoch, int, time.Duration)) {
	hs := r.config.hooks
	each(hs, func(HookSubmitted) {
		f = func(e Epoch, records int, took time.Duration) {
			r.guardHook(func() { each(hs, func(h HookSubmitted) { h.OnSubmitted(e, records, took) }) })
		}
	})
	return f
}

// committed leaves out epochs that are over: a commit of them can still be under
// way, or have waited behind their last one.
func (hs hooks) committed(offsets map[*epochState]position, took time.Duration, err error) {
	each(hs, func(h HookCommitted) {
		m := make(map[Epoch]int64, len(offsets))
		for s, at := range offsets {
			if !s.told {
				m[s.Epoch] = at.offset
			}
		}
		h.OnCommitted(m, took, err)
	})
}

func (hs hooks) paused(e Epoch, paused bool) {
	each(hs, func(h HookPaused) { h.OnPaused(e, paused) })
}

func (hs hooks) stalled(p PartitionStatus, stalled bool) {
	each(hs, func(h HookStalled) { h.OnStalled(p, stalled) })
}
