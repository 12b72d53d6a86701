package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/internal/hookorder"
)

// member is a process of the group, which is started again and again.
type member struct {
	world *world
	plan  memberPlan
	calls atomic.Int64 // of user code

	mu    sync.Mutex
	life  *life // that goes on, or the last one
	lives int
	wants bool // to be started again when it fails
}

// life is one run of a member.
type life struct {
	name      string
	member    *member
	host      hostControl
	consumer  *arroyo.Consumer
	processor *arroyo.Processor
	cancel    context.CancelCauseFunc
	crashed   atomic.Bool
	left      time.Time // when it was told to leave
	ended     chan struct{}
	err       error
}

// crew is the user code of one life.
type crew struct {
	member *member
	life   *life
	plan   pipelinePlan
}

func (m *member) alive() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life != nil && !isClosed(m.life.ended) && !m.life.crashed.Load() && m.life.left.IsZero()
}

// join starts the member, if it does not run.
func (m *member) join() {
	if m.alive() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wants = true
	m.start()
}

// start begins a life. member.mu is held.
func (m *member) start() {
	w := m.world
	m.lives++
	l := &life{name: fmt.Sprintf("%s.%d", m.plan.name, m.lives), member: m, ended: make(chan struct{})}
	host := w.broker.Host()
	l.host = host
	before := m.life
	m.life = l
	c := &crew{member: m, life: l, plan: m.plan.pipeline}

	opts := append(host.ClientOptions(), w.protocol()...)
	opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(2*time.Second), kgo.ClientID(l.name))
	if m.plan.tight {
		opts = append(opts, kgo.FetchMaxPartitionBytes(1))
	}
	if m.plan.static {
		opts = append(opts, kgo.InstanceID(m.plan.name))
	}
	start := arroyo.StartEarliest()
	if w.plan.latest {
		start = arroyo.StartLatest()
	}
	copts := []arroyo.ConsumerOption{arroyo.ClientOptions(opts...), arroyo.Start(start)}
	if w.plan.recycle {
		copts = append(copts, arroyo.RecycleRecords())
	}
	of := group
	if m.plan.follows {
		of = behind
		source := arroyo.CommitLogTopic(commits)
		if w.plan.follows == "offsets" {
			source = arroyo.GroupOffsets(300 * time.Millisecond)
		}
		copts = append(copts, arroyo.Synchronize(source, w.followed()...))
	}
	consumer, err := arroyo.NewConsumer(of, []string{topic}, copts...)
	if err != nil {
		w.t.Errorf("NewConsumer: %v", err)
		close(l.ended)
		return
	}
	l.consumer = consumer
	policy := arroyo.DeadLetterPolicy{Topic: dead, Producer: &mailbox{l}}
	if w.plan.limits {
		policy.MaxConsecutive, policy.MaxRatio = 1000, 0.99
	}
	popts := []arroyo.ProcessorOption{
		arroyo.MaxInFlight(m.plan.maxInFlight),
		arroyo.CommitInterval(m.plan.interval),
		arroyo.CommitEvery(m.plan.every),
		arroyo.DrainTimeout(m.plan.drain),
		arroyo.DeadLetter(policy),
		arroyo.Logger(slog.New(&logReader{l})),
		arroyo.Hooks(l, hookorder.New(w.t.Errorf)),
	}
	if w.plan.follows == "log" && !m.plan.follows {
		popts = append(popts, arroyo.CommitLog(commits))
	}
	if m.plan.partitioned {
		l.processor, err = arroyo.NewPartitionedProcessor(consumer, func(context.Context, arroyo.Epoch) (records, error) {
			return c.build(), nil
		}, popts...)
	} else {
		l.processor, err = arroyo.NewProcessor(consumer, c.build(), popts...)
	}
	if err != nil {
		w.t.Errorf("NewProcessor: %v", err)
		close(l.ended)
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	l.cancel = cancel
	w.running.Go(func() {
		if before != nil && !before.crashed.Load() {
			<-before.ended // one process at a time
		}
		l.err = l.processor.Run(ctx)
		m.over(l)
	})
}

// over is for the end of a life: it begins another one if it was an accident.
func (m *member) over(l *life) {
	w := m.world
	m.mu.Lock()
	left := l.left // it may be told to at this very moment
	m.mu.Unlock()
	if !l.crashed.Load() {
		excuse := ""
		if l.err != nil {
			excuse = l.err.Error()
		}
		w.history.add(fact{kind: factEnded, life: l, excuse: excuse, left: left})
		w.unexpected(l, left)
	}
	close(l.ended)
	if left.IsZero() && !l.crashed.Load() {
		time.Sleep(500 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.life == l && m.wants {
			m.start()
		}
	}
}

// promptly returns within which time a member has left that is told to, if
// nothing is in its way: what is in flight at the most, and the rest of leaving.
// Dead letters that failed are tried again after up to 10 seconds. That the group
// refuses its commits, as while a rebalance waits for a member that is gone, can
// only be seen afterwards.
func (w *world) promptly(p memberPlan) (within time.Duration, ok bool) {
	if w.delayed() || w.has("dead letters fail") || p.pipeline.slow > 0 || p.pipeline.fail > 0 {
		return 0, false
	}
	const rest, fetched = 3 * time.Second, 150
	work := p.pipeline.pace * time.Duration((len(p.pipeline.stages)+1)*(min(p.maxInFlight, 200)+fetched))
	return rest + work, rest+work < p.drain
}

// leave tells the member to end in good order.
func (m *member) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wants = false
	if l := m.life; l != nil && !isClosed(l.ended) && l.left.IsZero() {
		l.left = time.Now()
		l.cancel(nil)
	}
}

// crash ends the member as a power failure does.
func (m *member) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wants = false
	l := m.life
	if l == nil || isClosed(l.ended) || l.crashed.Swap(true) {
		return
	}
	m.world.history.add(fact{kind: factCrashed, life: l})
	l.host.Cut()
	l.processor.Abandon()
	l.cancel(arroyo.ErrAbandoned)
}

// network does something to the network of the life that goes on.
func (m *member) network(kind factKind, f func(hostControl)) {
	m.mu.Lock()
	l := m.life
	m.mu.Unlock()
	if l != nil && !isClosed(l.ended) && !l.crashed.Load() {
		f(l.host)
		l.see(fact{kind: kind})
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What user code and hooks of a life see. Those of a crashed one see nothing.

func (l *life) see(f fact) {
	if !l.crashed.Load() {
		f.life = l
		l.member.world.history.add(f)
	}
}

func (c *crew) handed(m arroyo.Message[*kgo.Record]) { c.life.see(factOf(factHanded, m)) }
func (c *crew) dropped(m arroyo.Message[*kgo.Record]) {
	f := factOf(factDone, m)
	f.excuse = dropped
	c.life.see(f)
}

func (c *crew) done(m arroyo.Message[*kgo.Record]) { c.life.see(factOf(factDone, m)) }

func factOf(kind factKind, m arroyo.Message[*kgo.Record]) fact {
	r := m.Record()
	return fact{kind: kind, epoch: m.Epoch(), partition: r.Partition, offset: r.Offset, id: string(r.Value)}
}

func (l *life) OnAssigned(epochs []arroyo.Epoch) { l.epochs(factAssigned, epochs) }

func (l *life) OnRevoked(epochs []arroyo.Epoch, _ time.Duration) { l.epochs(factRevoked, epochs) }

func (l *life) OnLost(epochs []arroyo.Epoch, _ error) { l.epochs(factLost, epochs) }

func (l *life) epochs(kind factKind, epochs []arroyo.Epoch) {
	for _, e := range epochs {
		l.see(fact{kind: kind, epoch: e, partition: e.Number})
	}
}

// mailbox produces dead letters with the consumer's client, and sees when they
// are acked.
type mailbox struct{ life *life }

func (b *mailbox) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	b.life.consumer.Client().Produce(ctx, r, func(r *kgo.Record, err error) {
		if err == nil {
			original, origin, readErr := arroyo.ReadDeadLetter(r)
			if readErr != nil {
				b.life.member.world.violation("I7: a dead letter cannot be read: %v", readErr)
			} else {
				b.life.see(fact{kind: factLetter, partition: origin.Partition.Number, offset: origin.Offset, id: string(original.Value)})
			}
		}
		promise(r, err)
	})
}

// outputs are produced with the consumer's client. What they are made of is done
// once they are acked.
type outputs struct {
	life *life
	of   sync.Map // facts, by *kgo.Record
}

func (o *outputs) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	o.life.consumer.Client().Produce(ctx, r, func(r *kgo.Record, err error) {
		if f, ok := o.of.LoadAndDelete(r); ok && err == nil {
			o.life.see(f.(fact))
		}
		promise(r, err)
	})
}

// logReader reads from the log what only it tells: work that was abandoned and
// last commits that failed.
type logReader struct{ life *life }

func (h *logReader) Enabled(context.Context, slog.Level) bool { return true }
func (h *logReader) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logReader) WithGroup(string) slog.Handler            { return h }

func (h *logReader) Handle(_ context.Context, r slog.Record) error {
	switch r.Message {
	case "drain is past its deadline; the next owner goes on here":
		e := arroyo.Epoch{Partition: arroyo.Partition{Topic: topic}}
		r.Attrs(func(a slog.Attr) bool {
			switch a.Key {
			case "partition":
				e.Number = int32(a.Value.Int64())
			case "epoch":
				e.N = a.Value.Uint64()
			}
			return true
		})
		h.life.see(fact{kind: factAbandoned, epoch: e, partition: e.Number})
	case "commit at the end of a drain failed; what was done since the last one is done again":
		h.life.see(fact{kind: factEnded, excuse: "last commit failed"})
	}
	return nil
}

// expectedEnd reports whether a run may end like that.
func expectedEnd(err error, calm bool) bool { // calm: the end began when the trouble was over
	for _, ok := range []error{nil, errBroken, arroyo.ErrAbandoned} {
		if errors.Is(err, ok) {
			return true
		}
	}
	var (
		stuck  *arroyo.StuckError
		commit *arroyo.CommitError
		panik  *arroyo.PanicError
		group  *arroyo.GroupError
	)
	if errors.As(err, &panik) {
		return panik.Value == any(errBroken)
	}
	return errors.As(err, &stuck) || !calm && (errors.As(err, &commit) || errors.As(err, &group))
}
