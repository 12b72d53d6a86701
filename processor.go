package arroyo

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Processor runs a pipeline over what a consumer reads: it keeps the records
// in order and within bounds, commits what is settled, and drains and commits
// before a partition is given up and before it ends. Run is called once; the
// other methods may be called from any goroutine, at any time.
type Processor struct {
	consumer *Consumer
	build    func(context.Context, Epoch) (Strategy[*kgo.Record], error)
	shared   bool // one pipeline for all partitions
	config   processorConfig

	ran       atomic.Bool
	abandoned chan struct{} // closed by Abandon
	abandon   sync.Once
	current   atomic.Pointer[run]
}

// ProcessorOption configures a Processor.
type ProcessorOption func(*processorConfig)

type processorConfig struct {
	drainTimeout   time.Duration
	commitInterval time.Duration
	commitEvery    int
	total          bound
	partition      bound
	stallAfter     time.Duration
	log            *slog.Logger
	hooks          hooks
	deadLetter     *DeadLetterPolicy
	commitLog      string
}

// bound is how much may be queued and unsettled.
type bound struct {
	records int
	bytes   int64
}

// DrainTimeout bounds how long work that has begun may take to finish when
// partitions are revoked and when the run ends. A fifth of it, at most five
// seconds, is kept for the last commit and for leaving the group. What is not
// done then is left to the partitions' next owner. A call of Submit sees its
// context end then; a batch does not, because it may be of other partitions too,
// except at the end of the run.
//
// It may be at most kgo.RebalanceTimeout - kgo.HeartbeatInterval - 5 s, since
// the group does not wait longer. Defaults to 25 s, or to that if it is less.
func DrainTimeout(d time.Duration) ProcessorOption {
	return func(c *processorConfig) { c.drainTimeout = d }
}

// CommitInterval says how often the offsets of settled records are committed.
// What was settled since is processed again after a crash. Defaults to 1 s.
func CommitInterval(d time.Duration) ProcessorOption {
	return func(c *processorConfig) { c.commitInterval = d }
}

// CommitEvery also commits whenever so many records were settled since the
// last commit, without waiting for the CommitInterval. One commit is sent at a
// time, and each costs the brokers a write. Defaults to 0: never.
func CommitEvery(records int) ProcessorOption {
	return func(c *processorConfig) { c.commitEvery = records }
}

// MaxInFlight bounds how many records of all partitions are queued and
// unsettled. At the bound no more are taken from kgo; one poll of it comes on
// top. When the steps hold back everything that is in flight, in a batch that
// is not full say, they are flushed.
//
// Defaults to 50,000; for a partitioned processor to 200,000. There, beyond the
// bound only those partitions are stopped that have more than their equal share
// of it, so that partitions which are stuck do not starve the others: the sum
// may then reach twice the bound.
func MaxInFlight(records int) ProcessorOption {
	return func(c *processorConfig) { c.total.records = records }
}

// MaxInFlightBytes is MaxInFlight in bytes of memory: keys, values and headers,
// decompressed, and about 180 bytes for each record and 40 for each header
// themselves; a sixteenth more if they were compressed, with zstd an eighth. Of
// large fetches the sizes of some records are taken for those of all. What kgo
// has fetched and not handed out comes on top: see kgo.FetchMaxBytes. Defaults
// to 256 MiB.
func MaxInFlightBytes(bytes int64) ProcessorOption {
	return func(c *processorConfig) { c.total.bytes = bytes }
}

// MaxPartitionInFlight bounds how many records of each partition are queued and
// unsettled, in a partitioned processor. At the bound the partition is paused;
// one fetch of it comes on top. It flows again when half of it is done, or
// sooner if it is fast. Defaults to 50,000, or to MaxInFlight if that is less.
func MaxPartitionInFlight(records int) ProcessorOption {
	return func(c *processorConfig) { c.partition.records = given(records) }
}

// MaxPartitionInFlightBytes is MaxPartitionInFlight in bytes, as
// MaxInFlightBytes counts them. Defaults to 64 MiB, or to MaxInFlightBytes if
// that is less.
func MaxPartitionInFlightBytes(bytes int64) ProcessorOption {
	return func(c *processorConfig) { c.partition.bytes = given(bytes) }
}

// given tells a zero that was given from one that was not.
func given[N int | int64](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// CommitLog also writes each commit to a topic, once the brokers have accepted
// it, so that other consumers can follow this group: see Synchronize, and
// CommitLogEntry for the format. The topic should be compacted, and have to
// itself what it has. If it cannot be written, commits go on, the log says so,
// and the next entry makes up for it. There is none by default.
func CommitLog(topic string) ProcessorOption {
	return func(c *processorConfig) { c.commitLog = topic }
}

// StallAfter says when a record that is not settled is too old: its partition
// is then reported, once, in the log and to the hooks, and Health says that
// the processor is not healthy until the record is settled. The age counts
// from when the record was fetched, so it includes the time in the queue.
// Defaults to 5 minutes.
func StallAfter(d time.Duration) ProcessorOption {
	return func(c *processorConfig) { c.stallAfter = d }
}

// Logger is where the processor tells of assignments, drains and failures; of
// each one in one line. The attributes of what concerns one partition are
// topic, partition, epoch, offset and step. At the level Debug each partition
// that comes or goes has a line. Defaults to slog.Default().
func Logger(log *slog.Logger) ProcessorOption {
	return func(c *processorConfig) { c.log = log }
}

// NewProcessor makes a processor of a consumer that nobody has polled, and of
// a pipeline, of which the processor is the one upstream. One goroutine runs the
// pipeline for all partitions. NewProcessor returns an *OptionError, and leaves
// the consumer as it is; Close it then.
func NewProcessor(consumer *Consumer, pipeline Strategy[*kgo.Record], opts ...ProcessorOption) (*Processor, error) {
	if pipeline == nil {
		return nil, &OptionError{"NewProcessor", "the pipeline is nil: give its first step"}
	}
	build := func(context.Context, Epoch) (Strategy[*kgo.Record], error) { return pipeline, nil }
	return newProcessor("NewProcessor", consumer, true, build, opts)
}

// NewPartitionedProcessor makes a processor that gives each assignment of a
// partition a pipeline and a goroutine of its own. Use it for state that
// belongs to a partition, and where a slow partition must not hold up others.
//
// The function is called on that goroutine, with a context that ends when the
// partition is given up; other partitions do not wait for it. Each call returns
// a new pipeline. When the partition is given up the pipeline is closed before
// its next owner begins, unless it takes longer than DrainTimeout. If the
// partition comes back while a call of user code from before still goes on, it
// waits for that call; if it takes longer than DrainTimeout, the run ends with a
// *StuckError.
//
// An error or panic of the function ends the run. NewPartitionedProcessor
// returns an *OptionError, and leaves the consumer as it is.
func NewPartitionedProcessor(consumer *Consumer, pipeline func(context.Context, Epoch) (Strategy[*kgo.Record], error), opts ...ProcessorOption) (*Processor, error) {
	if pipeline == nil {
		return nil, &OptionError{"NewPartitionedProcessor", "the function is nil: give one that makes a partition's pipeline"}
	}
	return newProcessor("NewPartitionedProcessor", consumer, false, pipeline, opts)
}

func newProcessor(name string, consumer *Consumer, shared bool, build func(context.Context, Epoch) (Strategy[*kgo.Record], error), opts []ProcessorOption) (*Processor, error) {
	if consumer == nil {
		return nil, &OptionError{name, "the consumer is nil: make one with NewConsumer"}
	}
	cfg := processorConfig{
		drainTimeout:   min(25*time.Second, consumer.budget),
		commitInterval: time.Second,
		total:          bound{50_000, 256 << 20},
		stallAfter:     5 * time.Minute,
		log:            slog.Default(),
	}
	if !shared {
		cfg.total.records = 200_000
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := cfg.check(consumer, shared); err != nil {
		return nil, err
	}
	return &Processor{
		consumer:  consumer,
		build:     build,
		shared:    shared,
		config:    cfg,
		abandoned: make(chan struct{}),
	}, nil
}

// check finds what cannot work, and completes what depends on other options.
func (c *processorConfig) check(consumer *Consumer, shared bool) error {
	switch {
	case c.drainTimeout <= 0:
		return &OptionError{"DrainTimeout", fmt.Sprintf("%v is not positive: give the time that work in progress may take to finish", c.drainTimeout)}
	case c.drainTimeout > consumer.budget:
		return &OptionError{"DrainTimeout", fmt.Sprintf(
			"%v is more than the %v that a rebalance leaves: lower it, or raise kgo.RebalanceTimeout in ClientOptions",
			c.drainTimeout, consumer.budget)}
	case c.commitInterval <= 0:
		return &OptionError{"CommitInterval", fmt.Sprintf("%v is not positive: give the time between two commits", c.commitInterval)}
	case c.commitEvery < 0:
		return &OptionError{"CommitEvery", fmt.Sprintf("%d is negative: give a number of records, or 0 for never", c.commitEvery)}
	case c.total.records <= 0:
		return &OptionError{"MaxInFlight", fmt.Sprintf("%d is not positive: give a number of records", c.total.records)}
	case c.total.bytes <= 0:
		return &OptionError{"MaxInFlightBytes", fmt.Sprintf("%d is not positive: give a number of bytes", c.total.bytes)}
	case c.partition.records < 0:
		return &OptionError{"MaxPartitionInFlight", "the bound is not positive: give a number of records"}
	case c.partition.bytes < 0:
		return &OptionError{"MaxPartitionInFlightBytes", "the bound is not positive: give a number of bytes"}
	case shared && c.partition.records > 0:
		return &OptionError{"MaxPartitionInFlight", "this processor has one pipeline for all partitions: use MaxInFlight, or NewPartitionedProcessor"}
	case shared && c.partition.bytes > 0:
		return &OptionError{"MaxPartitionInFlightBytes", "this processor has one pipeline for all partitions: use MaxInFlightBytes, or NewPartitionedProcessor"}
	case c.stallAfter <= 0:
		return &OptionError{"StallAfter", fmt.Sprintf("%v is not positive: give the age of a record that is too old", c.stallAfter)}
	case c.log == nil:
		return &OptionError{"Logger", "the logger is nil: leave the option out for slog.Default()"}
	}
	if c.partition.records == 0 {
		c.partition.records = min(50_000, c.total.records)
	}
	if c.partition.bytes == 0 {
		c.partition.bytes = min(64<<20, c.total.bytes)
	}
	if c.commitLog != "" && consumer.reads(c.commitLog) {
		return &OptionError{"CommitLog", fmt.Sprintf("the topic %q is one that this consumer reads: give another", c.commitLog)}
	}
	if c.deadLetter != nil {
		if err := c.deadLetter.check(consumer); err != nil {
			return err
		}
	}
	return c.hooks.check()
}

// Run joins the group and processes until ctx ends or something fails. When
// ctx ends it drains: it drops what was not begun, finishes the rest, commits
// and leaves the group, at the most DrainTimeout and a second later. If the
// cause of ctx's end is ErrAbandoned it does not wait for the rest; see
// Abandon.
//
// It returns nil after a clean drain. Otherwise it returns what failed first:
// a *StepError that names the step, the partition and the offset, a fatal
// error of the consumer, a *CommitError of the last commit, a *StuckError, an
// *AbandonedError. The pipeline is closed once in any case.
//
// Run owns the consumer and closes it. A processor runs once; a second Run
// returns ErrAlreadyRun.
func (p *Processor) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return ErrAlreadyRun
	}
	r := newRun(p)
	p.current.Store(r)
	return r.loop(ctx)
}

// Abandon ends the run at once, also one that is draining: contexts of user
// code end, what is settled is committed, the group is left, and Run returns an
// *AbandonedError if work was left. It does not wait. It is for the second
// Ctrl-C.
func (p *Processor) Abandon() {
	p.abandon.Do(func() { close(p.abandoned) })
	p.consumer.wake()
}
