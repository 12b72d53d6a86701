package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readLimit bounds one reading of the topic.
const readLimit = 2 * time.Minute

// Source is the topic of a broker.
type Source struct {
	Address string
	Layout
	begin func() // makes its records come, if it is not full from the start
}

// joinTime is what a reader gets to join its group before records come at a
// rate.
func (s Source) joinTime() time.Duration {
	return 2*time.Second + time.Duration(s.Partitions)*time.Millisecond/3
}

// Sum returns the sum of the records' numbers.
func (s Source) Sum() uint64 { return uint64(s.Records) * uint64(s.Records-1) / 2 }

// Options are those of every kgo reader's client.
func (s Source) Options() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(s.Address),
		kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
}

// Reader reads a source from its beginning as a new group, does the work, and
// commits every second and at the end, at least once.
type Reader struct {
	Name string
	// Read returns what it used until it had done the work of the last
	// record.
	Read func(ctx context.Context, s Source, group string) (Tally, Usage, error)
}

// Tally is what a reader counts.
type Tally struct {
	Records int
	Sum     uint64
}

// Add counts a record.
func (t *Tally) Add(v uint64) {
	t.Records++
	t.Sum += v
}

// counter is a Tally for several goroutines.
type counter struct{ records, sum atomic.Int64 }

func (c *counter) add(v uint64) (records int) {
	c.sum.Add(int64(v))
	return int(c.records.Add(1))
}

func (c *counter) tally() Tally { return Tally{int(c.records.Load()), uint64(c.sum.Load())} }

// Run lets a reader read all of the source, and checks that it did: every
// record once, and all of them committed.
func (r Reader) Run(ctx context.Context, s Source, group string) (Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	if s.begin != nil {
		defer time.AfterFunc(s.joinTime(), s.begin).Stop()
	}
	got, used, err := r.Read(ctx, s, group)
	if err != nil {
		return used, fmt.Errorf("%s, group %s, after %d of %d records: %w", r.Name, group, got.Records, s.Records, err)
	}
	if want := (Tally{s.Records, s.Sum()}); got != want {
		return used, fmt.Errorf("%s, group %s, read %d records of sum %d, not %d of sum %d", r.Name, group, got.Records, got.Sum, want.Records, want.Sum)
	}
	committed, err := s.Committed(ctx, group)
	if err != nil {
		return used, err
	}
	if committed != s.Records {
		return used, fmt.Errorf("%s, group %s, committed %d of %d records", r.Name, group, committed, s.Records)
	}
	return used, nil
}

// Committed returns how many records are below a group's offsets.
func (s Source) Committed(ctx context.Context, group string) (n int, err error) {
	client, err := kgo.NewClient(s.Options()...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	offsets, err := kadm.NewClient(client).FetchOffsets(ctx, group)
	if err != nil {
		return 0, fmt.Errorf("the offsets of group %s: %w", group, err)
	}
	offsets.Each(func(o kadm.OffsetResponse) { n += int(o.At) })
	return n, nil
}
