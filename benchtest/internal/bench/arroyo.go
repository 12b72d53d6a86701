package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// Shared is a Processor with three steps: RunTask, Filter and ForEach.
func Shared(cost Cost) Reader {
	return Reader{"arroyo", processor{cost: cost}.read}
}

// Recycling is Shared with RecycleRecords.
func Recycling(cost Cost) Reader {
	return Reader{"arroyo-recycle", processor{cost: cost, recycle: true}.read}
}

// RecyclingOneStep is Recycling with one step that does all, as the loop that
// one writes by hand does in its body.
func RecyclingOneStep(cost Cost) Reader {
	return Reader{"arroyo-recycle-one-step", processor{cost: cost, recycle: true, oneStep: true}.read}
}

// Batching is Shared with ForEachBatch of 1,000 at its end.
func Batching() Reader {
	return Reader{"arroyo-batch", processor{batch: true}.read}
}

// Partitioned is Shared with a pipeline for each partition.
func Partitioned(cost Cost) Reader {
	return Reader{"arroyo-partitioned", processor{cost: cost, partitioned: true}.read}
}

// Parallel is a Processor with RunTaskInParallel.
func Parallel(n int, cost Cost) Reader {
	return Reader{"arroyo-parallel", processor{cost: cost, parallel: n}.read}
}

// OnOneCore is a reader whose process has one core for all that it does.
func OnOneCore(r Reader) Reader {
	return Reader{r.Name + "-one-core", func(ctx context.Context, s Source, group string) (Tally, Usage, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		return r.Read(ctx, s, group)
	}}
}

// Producing is a Processor that writes each record to another topic.
func Producing() Reader {
	return Reader{"arroyo-produce", processor{produce: true}.read}
}

// DeadLettering is Shared where one of 100 records is a dead letter.
func DeadLettering() Reader {
	return Reader{"arroyo-letters", processor{letters: true}.read}
}

// processor is a reader that is a Processor.
type processor struct {
	cost                                                   Cost
	recycle, oneStep, batch, partitioned, produce, letters bool
	parallel                                               int
	latencies                                              *Latencies // nil: nobody wants to know
}

func (p processor) read(ctx context.Context, s Source, group string) (t Tally, used Usage, err error) {
	meter := StartMeter(s)
	done := newFinish(s, meter)
	opts := []arroyo.ConsumerOption{arroyo.ClientOptions(s.Options()...)}
	if p.recycle {
		opts = append(opts, arroyo.RecycleRecords())
	}
	consumer, err := arroyo.NewConsumer(group, []string{Topic}, opts...)
	if err != nil {
		return t, used, err
	}
	popts := []arroyo.ProcessorOption{arroyo.Logger(slog.New(slog.DiscardHandler))}
	if p.letters {
		popts = append(popts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: Dead}))
	}
	var made *arroyo.Processor
	if p.partitioned {
		made, err = arroyo.NewPartitionedProcessor(consumer, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return p.pipeline(consumer, done), nil
		}, popts...)
	} else {
		made, err = arroyo.NewProcessor(consumer, p.pipeline(consumer, done), popts...)
	}
	if err != nil {
		return t, used, errors.Join(err, consumer.Close())
	}
	used, err = runUntil(ctx, made, done.complete, meter)
	return done.tally(), used, err
}

func (p processor) pipeline(consumer *arroyo.Consumer, done *finish) arroyo.Strategy[*kgo.Record] {
	add := done.add
	if p.partitioned || p.parallel > 0 {
		add = done.addShared
	}
	do := func(v uint64) {
		if p.cost != None {
			p.cost.Do(v)
		}
		add(v)
	}
	wants := func(m arroyo.Message[uint64]) bool { return wanted(m.Payload) }
	switch {
	case p.oneStep:
		return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if v := binary.BigEndian.Uint64(m.Payload.Value); wanted(v) {
				do(v)
			}
			return nil
		})
	case p.parallel > 0:
		return strategies.RunTaskInParallel(p.parallel, func(_ context.Context, m arroyo.Message[*kgo.Record]) (struct{}, error) {
			do(binary.BigEndian.Uint64(m.Payload.Value))
			return struct{}{}, nil
		}, strategies.Noop[struct{}]())
	case p.produce:
		return strategies.Produce(counting{consumer.Client(), done}, func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
			return strategies.Outgoing(m, Out, m.Payload.Value), nil
		})
	case p.batch:
		return strategies.RunTask(decode, strategies.Filter(wants,
			strategies.ForEachBatch(1000, 100*time.Millisecond, func(_ context.Context, rows []arroyo.Message[uint64]) error {
				for i := range rows {
					do(rows[i].Payload)
				}
				return nil
			})))
	case p.letters:
		return strategies.RunTask(decode, strategies.Filter(wants,
			strategies.ForEach(func(_ context.Context, m arroyo.Message[uint64]) error {
				do(m.Payload)
				if m.Payload%100 == 0 {
					return arroyo.Invalid(errBad)
				}
				return nil
			})))
	}
	return strategies.RunTask(decode, strategies.Filter(wants,
		strategies.ForEach(func(_ context.Context, m arroyo.Message[uint64]) error {
			do(m.Payload)
			if p.latencies != nil {
				p.latencies.add(m.Record().Value)
			}
			return nil
		})))
}

var errBad = errors.New("it is one of a hundred")

func decode(_ context.Context, m arroyo.Message[*kgo.Record]) (uint64, error) {
	return binary.BigEndian.Uint64(m.Payload.Value), nil
}

// counting counts what was written.
type counting struct {
	to   strategies.Producer
	done *finish
}

func (c counting) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	v := binary.BigEndian.Uint64(r.Value)
	c.to.Produce(ctx, r, func(r *kgo.Record, err error) {
		if err == nil {
			c.done.addShared(v)
		}
		promise(r, err)
	})
}

// finish counts the records, and says when all are there.
type finish struct {
	s        Source
	meter    *Meter
	complete chan struct{}
	one      Tally // of one goroutine
	many     counter
	first    sync.Once
}

func newFinish(s Source, meter *Meter) *finish {
	return &finish{s: s, meter: meter, complete: make(chan struct{})}
}

func (f *finish) add(v uint64) {
	switch f.one.Add(v); f.one.Records {
	case 1:
		f.meter.First()
	case f.s.Records:
		close(f.complete)
	}
}

func (f *finish) addShared(v uint64) {
	switch f.many.add(v) {
	case 1:
		f.first.Do(f.meter.First)
	case f.s.Records:
		close(f.complete)
	}
}

func (f *finish) tally() Tally {
	many := f.many.tally()
	return Tally{f.one.Records + many.Records, f.one.Sum + many.Sum}
}

// runUntil runs a processor until its pipeline has all records, and returns
// what was used until then.
func runUntil(ctx context.Context, p *arroyo.Processor, complete <-chan struct{}, meter *Meter) (used Usage, err error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	select {
	case <-complete:
		used = meter.Stop()
		cancel()
		return used, <-ended
	case err := <-ended:
		return used, errors.Join(errors.New("the run ended before the last record"), ctx.Err(), err)
	}
}
