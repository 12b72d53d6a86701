package scenarios

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// protocols are the ways in which a group can rebalance.
var protocols = map[string][]kgo.Opt{
	"cooperative": nil,
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"kip848":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

// stage is what a scenario plays on: a Kafka, one topic, one group.
type stage struct {
	t *testing.T
	env
	timing
	protocol     string
	opts         []kgo.Opt // of the protocol
	topic, group string
	partitions   int
	ledger

	mu    sync.Mutex
	next  int
	runs  map[string]string
	facts []string
}

// outcome is what is compared.
type outcome struct {
	Processed int               // records that user code saw
	Twice     int               // how many of them more than once
	Disorder  int               // how often a member saw a partition go back
	Behind    int               // partitions of which not all is committed
	Runs      map[string]string // the kind of error of each Run that had one
	Facts     []string
}

func (s *stage) outcome() outcome {
	o := outcome{Runs: s.runs, Facts: s.facts}
	o.Processed, o.Twice, o.Disorder = s.totals()
	committed := s.committed(s.t, s.group, s.topic)
	for p, end := range s.ends(s.t, s.topic) {
		if committed[p] != end {
			o.Behind++
		}
	}
	return o
}

// fact notes what turned out.
func (s *stage) fact(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = append(s.facts, fmt.Sprintf(format, args...))
}

// eventually waits for something that has to come.
func (s *stage) eventually(what string, ok func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(s.limit)
	for !ok() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s; committed %v of %v; group %+v",
				s.limit, what, s.committed(s.t, s.group, s.topic), s.ends(s.t, s.topic), s.describe(s.t, s.group))
		}
		time.Sleep(s.look)
	}
}

// await is eventually for a channel.
func (s *stage) await(what string, ch <-chan struct{}) {
	s.t.Helper()
	select {
	case <-ch:
	case <-time.After(s.limit):
		s.t.Fatalf("not within %v: %s", s.limit, what)
	}
}

// whileStill waits as long as what must not happen could take.
func (s *stage) whileStill() { time.Sleep(s.still) }

// stable waits until the group has that many members and all partitions are
// given to them.
func (s *stage) stable(members int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d members, stable", members), func() bool {
		view := s.describe(s.t, s.group)
		return view.stable && len(view.members) == members && (members == 0 || view.assigned() == s.partitions)
	})
}

// caughtUp waits until all is committed.
func (s *stage) caughtUp() {
	s.t.Helper()
	s.eventually("all is committed", func() bool { return s.behind(s.group) == 0 })
}

// behind returns of how many partitions the group has not committed the end.
func (s *stage) behind(group string) (n int) {
	committed := s.committed(s.t, group, s.topic)
	for p, end := range s.ends(s.t, s.topic) {
		if committed[p] != end {
			n++
		}
	}
	return n
}

// processed waits until that many different records were seen.
func (s *stage) processed(n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%d records are processed", n), func() bool {
		got, _, _ := s.totals()
		return got >= n
	})
}

// partitionsOf returns what the group has given to a member.
func (s *stage) partitionsOf(name string) []int32 {
	for _, m := range s.describe(s.t, s.group).members {
		if m.clientID == name {
			return m.partitions
		}
	}
	return nil
}

// put produces n records, round robin over the partitions.
func (s *stage) put(n int) {
	s.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = s.record(int32(s.next%s.partitions), fmt.Sprint(s.next))
		s.next++
	}
	s.produce(s.t, records...)
}

// putTo produces values to one partition.
func (s *stage) putTo(partition int32, values ...string) {
	s.t.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, s.record(partition, v))
	}
	s.produce(s.t, records...)
}

func (s *stage) record(partition int32, value string) *kgo.Record {
	return &kgo.Record{Topic: s.topic, Partition: partition, Value: []byte(value)}
}

// with is how a member differs from the others.
type with struct {
	group, topic string
	kgo          []kgo.Opt
	consumer     []arroyo.ConsumerOption
	processor    []arroyo.ProcessorOption
}

// open makes a consumer on a host of its own.
func (s *stage) open(name string, w with) (*arroyo.Consumer, host) {
	s.t.Helper()
	h := s.newHost()
	if w.group == "" {
		w.group = s.group
	}
	if w.topic == "" {
		w.topic = s.topic
	}
	consumer, err := arroyo.NewConsumer(w.group, []string{w.topic}, slices.Concat([]arroyo.ConsumerOption{
		arroyo.ClientOptions(h.ClientOptions()...),
		arroyo.ClientOptions(s.timing.kgo...),
		arroyo.ClientOptions(s.opts...),
		arroyo.ClientOptions(kgo.ClientID(name)),
		arroyo.ClientOptions(w.kgo...),
	}, s.timing.consumer, w.consumer)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { consumer.Close() })
	return consumer, h
}

// member is a processor that runs.
type member struct {
	s        *stage
	name     string
	host     host
	consumer *arroyo.Consumer
	run      func() error
	ended    chan struct{}
}

// start starts a processor.
func (s *stage) start(name string, pipeline arroyo.Strategy[*kgo.Record], w with) *member {
	s.t.Helper()
	consumer, h := s.open(name, w)
	processor, err := arroyo.NewProcessor(consumer, pipeline, slices.Concat(
		[]arroyo.ProcessorOption{arroyo.Logger(slog.New(slog.DiscardHandler))}, s.timing.processor, w.processor)...)
	if err != nil {
		s.t.Fatal(err)
	}
	m := &member{s: s, name: name, host: h, consumer: consumer, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var result error
	go func() {
		defer close(m.ended)
		result = processor.Run(ctx)
	}()
	m.run = func() error {
		cancel()
		<-m.ended
		return result
	}
	s.t.Cleanup(func() { _ = m.run() })
	return m
}

// stop shuts the member down and notes how Run ended.
func (m *member) stop() {
	if kind := kindOf(m.run()); kind != "" {
		if m.s.runs == nil {
			m.s.runs = make(map[string]string)
		}
		m.s.runs[m.name] = kind
	}
}

// ends waits until Run has returned by itself.
func (m *member) ends() {
	m.s.t.Helper()
	m.s.await("Run of "+m.name+" returns", m.ended)
	m.stop()
}

// crash makes the member vanish: nothing is drained, committed or said.
func (m *member) crash() {
	m.host.Cut()
	m.consumer.Close()
	m.ends()
}

// kindOf says what kind of error ended a Run.
func kindOf(err error) string {
	var (
		panicked   *arroyo.PanicError
		outOfRange *arroyo.OffsetOutOfRangeError
		unknown    *arroyo.UnknownTopicError
		start      *arroyo.StartError
		letter     *arroyo.DeadLetterError
		step       *arroyo.StepError
		commit     *arroyo.CommitError
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, arroyo.ErrNoDeadLetter):
		return "rejected"
	case errors.Is(err, arroyo.ErrReturned):
		return "returned"
	case errors.As(err, &outOfRange):
		return fmt.Sprintf("offset %d outside of %d to %d", outOfRange.Offset, outOfRange.Start, outOfRange.End)
	case errors.As(err, &unknown):
		return "unknown topic"
	case errors.As(err, &start):
		return "start"
	case errors.As(err, &letter):
		return "dead letter"
	case errors.As(err, &step):
		return "step"
	case errors.Is(err, arroyo.ErrClosed): // which may also have left work
		return "closed"
	case errors.Is(err, arroyo.ErrAbandoned):
		return "abandoned"
	case errors.As(err, &commit):
		return "commit"
	default:
		return err.Error()
	}
}

// each is a pipeline that notes what it sees.
func (s *stage) each(name string) arroyo.Strategy[*kgo.Record] {
	return s.eachBut(name, func(context.Context, *kgo.Record) error { return nil })
}

// eachBut is each with something to do before.
func (s *stage) eachBut(name string, f func(context.Context, *kgo.Record) error) arroyo.Strategy[*kgo.Record] {
	return strategies.ForEach(func(ctx context.Context, m arroyo.Message[*kgo.Record]) error {
		if err := f(ctx, m.Payload); err != nil {
			return err
		}
		s.saw(name, m.Payload)
		return nil
	})
}

// poll hands the consumer's events to a function until it says that this is
// enough, or done does.
func (s *stage) poll(c *arroyo.Consumer, what string, handle func(arroyo.Event), done func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(s.limit)
	for !done() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s", s.limit, what)
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), 100*time.Millisecond)
		ev, err := c.Poll(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			s.t.Fatalf("Poll, waiting for %s: %v", what, err)
		}
		handle(ev)
	}
}

// serve is a loop on a goroutine of its own, until the consumer is closed.
func (s *stage) serve(c *arroyo.Consumer, handle func(arroyo.Event)) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := c.Poll(context.Background())
			if err != nil {
				return
			}
			handle(ev)
		}
	}()
	s.t.Cleanup(func() {
		c.Close()
		<-done
	})
	return done
}

// place is where a record is.
type place struct {
	topic     string
	partition int32
	offset    int64
}

// ledger is who saw which record, in order.
type ledger struct {
	lock sync.Mutex
	seen []sight
}

type sight struct {
	by string
	place
}

func (l *ledger) saw(by string, r *kgo.Record) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.seen = append(l.seen, sight{by, place{r.Topic, r.Partition, r.Offset}})
}

func (l *ledger) totals() (records, twice, disorder int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	counts := make(map[place]int)
	type line struct {
		by, topic string
		partition int32
	}
	last := make(map[line]int64)
	for _, s := range l.seen {
		counts[s.place]++
		k := line{s.by, s.topic, s.partition}
		if before, ok := last[k]; ok && s.offset <= before {
			disorder++
		}
		last[k] = s.offset
	}
	for _, n := range counts {
		if n > 1 {
			twice++
		}
	}
	return len(counts), twice, disorder
}

// by returns how many records a member saw.
func (l *ledger) by(name string) (n int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	for _, s := range l.seen {
		if s.by == name {
			n++
		}
	}
	return n
}
