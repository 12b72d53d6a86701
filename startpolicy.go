package arroyo

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// StartPolicy says where a partition starts of which the group has committed
// nothing. It applies to no other: a group that has begun goes on where it is.
// What it resolves to is committed at once.
//
// A partition that was added to its topic after the group had begun starts at
// its beginning, except under StartFrom: nobody wanted to skip what is in
// there. (The group's commits say in their metadata how many partitions there
// were; offsets set by other tools do not.)
type StartPolicy struct {
	kind startKind
	time time.Time
	from func(context.Context, Partition) (int64, error)
}

type startKind int

const (
	startEarliest startKind = iota
	startLatest
	startAtTime
	startFrom
)

// StartEarliest starts at the beginning of the log. It is the default.
func StartEarliest() StartPolicy { return StartPolicy{} }

// StartLatest starts at the end of the log.
func StartLatest() StartPolicy { return StartPolicy{kind: startLatest} }

// StartAtTime starts at the first record with that timestamp or a later one,
// and at the end of the log if there is none.
func StartAtTime(t time.Time) StartPolicy { return StartPolicy{kind: startAtTime, time: t} }

// StartFrom asks a function for each partition. Its context ends after a
// minute, and when the partition is revoked. Its error or panic is a fatal
// Failed with a *StartError; it is asked again after a while, as long as the
// partition is held.
func StartFrom(f func(context.Context, Partition) (offset int64, err error)) StartPolicy {
	return StartPolicy{kind: startFrom, from: f}
}

// Start sets the start policy. Defaults to StartEarliest.
func Start(p StartPolicy) ConsumerOption {
	return func(c *consumerConfig) { c.start = p }
}

// StartError reports that the function of StartFrom failed.
type StartError struct {
	Partition Partition
	Err       error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("arroyo: the function given to StartFrom failed for %s: %v", e.Partition, e.Err)
}

func (e *StartError) Unwrap() error { return e.Err }

const startFromTime = time.Minute

// resolve finds the offsets at which partitions start.
func (policy StartPolicy) resolve(ctx context.Context, c *Consumer, ps []Partition) (map[Partition]position, error) {
	starts := make(map[Partition]position, len(ps))
	if policy.kind == startFrom {
		for _, p := range ps {
			offset, err := policy.ask(ctx, p)
			if err != nil {
				return nil, &StartError{p, err}
			}
			starts[p] = position{offset, -1}
		}
		// How many partitions there are is noted all the same.
		_, err := c.list(ctx, StartEarliest(), ps)
		return starts, err
	}
	listed, err := c.list(ctx, policy, ps)
	if err != nil {
		return nil, err
	}
	var later []Partition
	if policy.kind != startEarliest {
		if later, err = c.addedLater(ctx, ps); err != nil {
			return nil, err
		}
	}
	if len(later) > 0 {
		beginnings, err := c.list(ctx, StartEarliest(), later)
		if err != nil {
			return nil, err
		}
		for p, at := range beginnings {
			listed[p] = at
		}
	}
	return listed, nil
}

func (policy StartPolicy) ask(ctx context.Context, p Partition) (offset int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, startFromTime)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	offset, err = policy.from(ctx, p)
	if err == nil && offset < 0 {
		err = fmt.Errorf("offset %d is negative", offset)
	}
	return offset, err
}

// list asks the brokers for offsets, and notes how many partitions there are.
func (c *Consumer) list(ctx context.Context, policy StartPolicy, ps []Partition) (map[Partition]position, error) {
	admin := kadm.NewClient(c.client)
	topics := topicsOf(ps)
	var (
		listed kadm.ListedOffsets
		err    error
	)
	switch policy.kind {
	case startLatest:
		if c.readCommitted() {
			listed, err = admin.ListCommittedOffsets(ctx, topics...)
		} else {
			listed, err = admin.ListEndOffsets(ctx, topics...)
		}
	case startAtTime:
		listed, err = admin.ListOffsetsAfterMilli(ctx, policy.time.UnixMilli(), topics...)
	default:
		listed, err = admin.ListStartOffsets(ctx, topics...)
	}
	if err != nil {
		return nil, err
	}
	at := make(map[Partition]position, len(ps))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range ps {
		l, ok := listed.Lookup(p.Topic, p.Number)
		if !ok {
			return nil, &PartitionError{p, kerr.UnknownTopicOrPartition}
		}
		if l.Err != nil {
			return nil, &PartitionError{p, l.Err}
		}
		at[p] = position{l.Offset, -1}
		if c.metadata[p] == "" {
			c.metadata[p] = startMetadata(len(listed[p.Topic]))
		}
	}
	return at, nil
}

func (c *Consumer) readCommitted() bool {
	return c.client.OptValue(kgo.FetchIsolationLevel) == any(kgo.ReadCommitted())
}

// Every commit for a partition carries how many partitions its topic had when
// the group began with it. A partition whose number is not below that was added
// later.
const startMetadataFormat = "arroyo: %d partitions at the start"

func startMetadata(partitions int) string { return fmt.Sprintf(startMetadataFormat, partitions) }

func (c *Consumer) addedLater(ctx context.Context, ps []Partition) (later []Partition, err error) {
	committed, err := kadm.NewClient(c.client).FetchOffsets(ctx, c.group)
	if err != nil {
		return nil, err
	}
	for _, p := range ps {
		for _, o := range committed[p.Topic] {
			var had int32
			if n, _ := fmt.Sscanf(o.Metadata, startMetadataFormat, &had); n == 1 && had <= p.Number {
				later = append(later, p)
				break
			}
		}
	}
	return later, nil
}

// offsetsFetched is kgo's hook for what the group has committed: our commits go
// on saying what its commits say.
func (c *Consumer) offsetsFetched(_ context.Context, client *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range resp.Groups {
		for j := range resp.Groups[i].Topics {
			t := &resp.Groups[i].Topics[j]
			for _, rp := range t.Partitions {
				p := Partition{t.Topic, rp.Partition}
				if c.metadata[p] == "" && rp.Metadata != nil && rp.Offset >= 0 {
					c.metadata[p] = *rp.Metadata
				}
			}
		}
	}
	return nil
}
