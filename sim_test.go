package arroyo_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// To replay what failed, or to look for more:
//
//	go test -run 'TestSimulation' -sim.seed 17 -sim.runs 1 .
var (
	simSeed = flag.Uint64("sim.seed", 0, "first seed of TestSimulation")
	simRuns = flag.Uint64("sim.runs", 3, "how many seeds TestSimulation plays, for each protocol and kind of processor")
)

// A simulation: members with random options come, go, are kicked out, abandoned,
// closed and drained by their users, while user code is slow, stuck, or ignores
// its context, commits fail, and brokers go away. Whatever happens, nothing is
// committed that was not done (I1, I2), Run returns in time (I8) and tells if
// something is left, what is in flight adds up (I9), and once all is calm the
// group catches up (I10) and nothing was lost.
func TestSimulation(t *testing.T) {
	for seed := *simSeed; seed < *simSeed+*simRuns; seed++ {
		for _, p := range protocols {
			for _, kind := range []string{"shared", "partitioned"} {
				t.Run(fmt.Sprintf("%d/%s/%s", seed, p.name, kind), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := &simulation{t: t, rand: rand.New(rand.NewPCG(seed, 7)), kind: kind, opts: p.opts,
							broker: memkafka.New(t, memkafka.Topic(topic, 5))}
						s.run()
					})
				})
			}
		}
	}
}

type simulation struct {
	t       *testing.T
	rand    *rand.Rand
	kind    string
	opts    []kgo.Opt
	broker  *memkafka.Broker
	ledger  ledger
	calm    atomic.Bool // user code is quick
	members []*simMember
	made    int
}

type simMember struct {
	*arroyo.Processor
	consumer *arroyo.Consumer
	stop     func() error
}

// upTo returns a random time.
func (s *simulation) upTo(d time.Duration) time.Duration {
	return time.Duration(s.rand.Int64N(int64(d)))
}

func (s *simulation) run() {
	s.watchCommits()
	s.join()
	for range 30 {
		for range s.rand.IntN(10) {
			produce(s.broker, s.rand.IntN(300))
		}
		s.somethingHappens()
		for _, m := range s.members {
			if st := m.Status(); st.InFlight < 0 || st.InFlightBytes < 0 {
				s.t.Errorf("%d records of %d bytes are in flight", st.InFlight, st.InFlightBytes)
			}
		}
		time.Sleep(s.upTo(6 * time.Second))
	}
	s.calm.Store(true)
	for len(s.members) > 1 {
		s.leave(s.members[0], (*simMember).drains)
	}
	s.catchUp()
	m := s.members[0]
	time.Sleep(time.Second)
	if st := m.Status(); st.InFlight != 0 || st.InFlightBytes != 0 {
		s.t.Errorf("caught up, and %d records of %d bytes are in flight", st.InFlight, st.InFlightBytes)
	}
	s.leave(m, (*simMember).drains)
	counts := s.ledger.counts()
	for _, r := range s.broker.Records(topic) {
		if counts[[2]int64{int64(r.Partition), r.Offset}] == 0 {
			s.t.Fatalf("offset %d of partition %d was lost", r.Offset, r.Partition)
		}
	}
	time.Sleep(time.Minute) // what ignores its context
}

// watchCommits sees every commit before the broker does.
func (s *simulation) watchCommits() {
	s.broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.Cluster().KeepControl()
		done := s.ledger.counts()
		for _, rt := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, rp := range rt.Partitions {
				for offset := range rp.Offset {
					if done[[2]int64{int64(rp.Partition), offset}] == 0 {
						s.t.Errorf("commit of %d for partition %d, but %d is not done", rp.Offset, rp.Partition, offset)
						break
					}
				}
			}
		}
		return nil, nil, false
	})
}

func (s *simulation) somethingHappens() {
	switch what := s.rand.IntN(12); {
	case what < 3 && len(s.members) < 4:
		s.join()
	case what < 5 && len(s.members) > 1:
		hows := []func(*simMember, *simulation){(*simMember).drains, (*simMember).drains, (*simMember).isAbandoned, (*simMember).isClosed, (*simMember).isDrained}
		s.leave(s.members[s.rand.IntN(len(s.members))], hows[s.rand.IntN(len(hows))])
	case what == 5 && s.broker.Members(group) > 0:
		s.broker.ForceRebalance(group)
	case what == 6:
		answers := []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.RebalanceInProgress, kerr.NotCoordinator, kerr.RequestTimedOut}
		s.broker.Fail(kmsg.OffsetCommit, answers[s.rand.IntN(len(answers))], memkafka.Times(1+s.rand.IntN(3)))
	case what == 7:
		if members := s.broker.Group(group).Members; len(members) > 0 {
			s.broker.Kick(group, members[s.rand.IntN(len(members))].ID)
		}
	case what == 8:
		fault := s.broker.Delay(kmsg.OffsetCommit, time.Millisecond+s.upTo(5*time.Second))
		time.Sleep(s.upTo(8 * time.Second))
		fault.Heal()
	case what == 9:
		m := s.members[s.rand.IntN(len(s.members))]
		if held := m.consumer.Assignment(); len(held) > 0 {
			p := held[s.rand.IntN(len(held))].Partition
			_ = m.consumer.Pause(p) // it may be gone by now
			time.Sleep(s.upTo(3 * time.Second))
			_ = m.consumer.Resume(p)
		}
	case what == 10:
		s.broker.Down()
		time.Sleep(s.upTo(time.Minute))
		s.broker.Up()
	}
}

// join adds a member with random options.
func (s *simulation) join() {
	s.made++
	by := fmt.Sprint("m", s.made)
	opts := []kgo.Opt{kgo.ClientID(by), kgo.FetchMaxPartitionBytes(int32(500 + s.rand.IntN(5000)))}
	c := newConsumer(s.t, s.broker, append(opts, s.opts...)...)
	popts := []arroyo.ProcessorOption{
		quiet,
		arroyo.DrainTimeout(3*time.Second + s.upTo(8*time.Second)),
		arroyo.CommitInterval(100*time.Millisecond + s.upTo(3*time.Second)),
		arroyo.MaxInFlight(50 + s.rand.IntN(1000)),
		arroyo.Hooks(allHooks(func(string) {})),
	}
	if s.rand.IntN(2) == 0 {
		popts = append(popts, arroyo.CommitEvery(1+s.rand.IntN(200)))
	}
	var (
		p    *arroyo.Processor
		err  error
		seed = s.rand.Uint64()
	)
	if s.kind == "shared" {
		p, err = arroyo.NewProcessor(c, s.pipeline(by, seed), popts...)
	} else {
		popts = append(popts, arroyo.MaxPartitionInFlight(20+s.rand.IntN(200)))
		p, err = arroyo.NewPartitionedProcessor(c, func(_ context.Context, e arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			if r := rand.New(rand.NewPCG(seed, e.N)); r.IntN(5) == 0 && !s.calm.Load() {
				time.Sleep(time.Duration(r.IntN(8)) * time.Second)
			}
			return s.pipeline(by, seed+e.N), nil
		}, popts...)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.members = append(s.members, &simMember{p, c, memkafka.Start(s.t, p.Run)})
}

// pipeline has a step of a random kind that ends it.
func (s *simulation) pipeline(by string, seed uint64) arroyo.Strategy[*kgo.Record] {
	r := rand.New(rand.NewPCG(seed, 3))
	one := func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
		// By the message, since tasks may run in parallel.
		r := rand.New(rand.NewPCG(seed, uint64(m.Payload.Offset)))
		switch n := r.IntN(400); {
		case s.calm.Load():
		case n == 0:
			time.Sleep(time.Duration(r.IntN(14)) * time.Second) // whatever its context says
		case n < 4:
			select {
			case <-time.After(time.Duration(r.IntN(20)) * time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		case n < 20:
			time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
		}
		if m.Fenced() {
			return ctx.Err()
		}
		s.ledger.add(by, m.Payload)
		return nil
	}
	task := func(ctx context.Context, m arroyo.Message[*kgo.Record]) (int, error) { return 0, one(ctx, m) }
	many := func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
		for _, row := range rows {
			if err := one(ctx, row); err != nil {
				return err
			}
		}
		return nil
	}
	size, wait := 1+r.IntN(300), time.Duration(1+r.IntN(3000))*time.Millisecond
	ints := func(_ context.Context, rows []arroyo.Message[int]) error { return nil }
	switch r.IntN(5) {
	case 0:
		return strategies.ForEach(one)
	case 1:
		return strategies.RunTaskInParallel(1+r.IntN(8), task, strategies.ForEachBatch(size, wait, ints))
	case 2:
		return strategies.RunTaskUnordered(1+r.IntN(8), task, strategies.Noop[int]())
	default:
		return strategies.ForEachBatch(size, wait, many)
	}
}

func (m *simMember) drains(*simulation) {}
func (m *simMember) isAbandoned(s *simulation) {
	time.AfterFunc(s.upTo(4*time.Second), m.Abandon)
}
func (m *simMember) isClosed(s *simulation) {
	time.AfterFunc(s.upTo(2*time.Second), func() { m.consumer.Close() })
}
func (m *simMember) isDrained(s *simulation) {
	timeout := s.upTo(10 * time.Second)
	time.AfterFunc(s.upTo(2*time.Second), func() { m.consumer.Drain(timeout) })
}

// leave stops a member, to which something may happen meanwhile.
func (s *simulation) leave(m *simMember, how func(*simMember, *simulation)) {
	for i := range s.members {
		if s.members[i] == m {
			s.members = append(s.members[:i], s.members[i+1:]...)
			break
		}
	}
	how(m, s)
	began := time.Now()
	err := m.stop()
	if took := time.Since(began); took > 12*time.Second { // the longest DrainTimeout and a second
		s.t.Errorf("Run returned after %v", took)
	}
	var (
		stuck  *arroyo.StuckError
		commit *arroyo.CommitError
	)
	switch {
	case err == nil, errors.Is(err, arroyo.ErrAbandoned), errors.Is(err, arroyo.ErrClosed), errors.Is(err, arroyo.ErrFenced):
	case errors.As(err, &stuck), errors.As(err, &commit):
	default:
		s.t.Errorf("Run: %v", err)
	}
	st := m.Status()
	if st.State != arroyo.StateEnded {
		s.t.Errorf("after Run: %q", st.State)
	}
	// A partition that came just before the end has nothing of its own to
	// commit: its watermark is where the group was.
	committed := s.broker.Committed(group, topic)
	for _, p := range st.Partitions {
		if err == nil && p.End >= 0 && (p.InFlight > 0 || p.Watermark > max(p.Committed, committed[p.Epoch.Number])) {
			s.t.Errorf("Run returned nil, and left %+v", p)
		}
	}
}

// catchUp waits until the last member, or a new one if that has ended, has
// committed everything.
func (s *simulation) catchUp() {
	sum := func(offsets map[int32]int64) (n int64) {
		for _, o := range offsets {
			n += o
		}
		return n
	}
	for range 20 * 60 {
		if s.members[0].Status().State == arroyo.StateEnded {
			s.leave(s.members[0], (*simMember).drains)
			s.join()
		}
		if sum(s.broker.Committed(group, topic)) == sum(s.broker.End(topic)) {
			return
		}
		time.Sleep(time.Second)
	}
	s.t.Errorf("it is not caught up after 20 minutes: committed %v of %v\n%+v",
		s.broker.Committed(group, topic), s.broker.End(topic), s.members[0].Status())
}
