package arroyo

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Processor runs a pipeline over what a consumer reads: it keeps the records
// in order and within bounds, commits what is settled, and drains and commits
// before a partition is given up and before it ends.
type Processor struct {
	consumer *Consumer
	pipeline Strategy[*kgo.Record]
	config   processorConfig
	ran      atomic.Bool
}

// ProcessorOption configures a Processor.
type ProcessorOption func(*processorConfig)

type processorConfig struct {
	drainTimeout   time.Duration
	commitInterval time.Duration
	maxInFlight    int
	log            *slog.Logger
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

// MaxInFlight bounds how many records are queued and unsettled. At the bound
// no more are taken from kgo; one poll of it comes on top. Defaults to 50,000.
func MaxInFlight(records int) ProcessorOption {
	return func(c *processorConfig) { c.maxInFlight = records }
}

// Logger is where the processor tells of assignments, drains and failures.
// Defaults to slog.Default().
//
// It says "partition assigned", "partition revoked" and "partition lost" for
// each partition that comes and goes, with the attributes topic, partition,
// epoch. These stay as they are, for those who watch a processor by its log.
func Logger(log *slog.Logger) ProcessorOption {
	return func(c *processorConfig) { c.log = log }
}

// NewProcessor makes a processor of a consumer that nobody has polled, and of
// a pipeline, of which the processor is the one upstream. It returns an
// *OptionError, and leaves the consumer as it is; Close it then.
func NewProcessor(consumer *Consumer, pipeline Strategy[*kgo.Record], opts ...ProcessorOption) (*Processor, error) {
	if consumer == nil {
		return nil, &OptionError{"NewProcessor", "the consumer is nil: make one with NewConsumer"}
	}
	if pipeline == nil {
		return nil, &OptionError{"NewProcessor", "the pipeline is nil: give its first step"}
	}
	cfg := processorConfig{
		drainTimeout:   min(25*time.Second, consumer.budget),
		commitInterval: time.Second,
		maxInFlight:    50_000,
		log:            slog.Default(),
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	switch {
	case cfg.drainTimeout <= 0:
		return nil, &OptionError{"DrainTimeout", fmt.Sprintf("%v is not positive: give the time that work in progress may take to finish", cfg.drainTimeout)}
	case cfg.drainTimeout > consumer.budget:
		return nil, &OptionError{"DrainTimeout", fmt.Sprintf(
			"%v is more than the %v that a rebalance leaves: lower it, or raise kgo.RebalanceTimeout in ClientOptions",
			cfg.drainTimeout, consumer.budget)}
	case cfg.commitInterval <= 0:
		return nil, &OptionError{"CommitInterval", fmt.Sprintf("%v is not positive: give the time between two commits", cfg.commitInterval)}
	case cfg.maxInFlight <= 0:
		return nil, &OptionError{"MaxInFlight", fmt.Sprintf("%d is not positive: give a number of records", cfg.maxInFlight)}
	case cfg.log == nil:
		return nil, &OptionError{"Logger", "the logger is nil: leave the option out for slog.Default()"}
	}
	return &Processor{consumer: consumer, pipeline: pipeline, config: cfg}, nil
}

// Run joins the group and processes until ctx ends or something fails. When
// ctx ends it drains: it drops what was not begun, finishes the rest, commits
// and leaves the group, at the most DrainTimeout and a second later.
//
// It returns nil after a clean drain. Otherwise it returns what failed first:
// a *StepError that names the step, the partition and the offset, a fatal
// error of the consumer, a *CommitError of the last commit, an
// *AbandonedError. The pipeline is closed once in any case.
//
// Run owns the consumer and closes it. A processor runs once; a second Run
// returns ErrAlreadyRun.
func (p *Processor) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return ErrAlreadyRun
	}
	return newRun(p).loop(ctx)
}
