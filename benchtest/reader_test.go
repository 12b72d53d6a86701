package benchtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readLimit bounds one reading of the topic.
const readLimit = 2 * time.Minute

// joinTime is what a reader gets to join its group before records come at a
// rate.
const joinTime = 5 * time.Second

// source is a topic.
type source struct {
	address string
	records int
	begin   func() // makes its records come, if it is not full from the start
}

// sum returns the sum of the records' numbers.
func (s source) sum() uint64 { return uint64(s.records) * uint64(s.records-1) / 2 }

// options are those of every reader's client.
func (s source) options() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(s.address),
		kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
	}
}

// tally is what a reader counts.
type tally struct {
	records int
	sum     uint64
}

func (t *tally) add(v uint64) {
	t.records++
	t.sum += v
}

// wanted is what the filter of every reader keeps: all of the topic.
func wanted(v uint64) bool { return v < 1<<62 }

// A reader reads the source from its beginning as a new group, and commits. It
// returns what it used until it had the last record.
type reader func(ctx context.Context, s source, group string) (tally, usage, error)

// read lets a reader read all of the source and verifies that it did.
func read(tb testing.TB, s source, group string, r reader) usage {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	if s.begin != nil {
		defer time.AfterFunc(joinTime, s.begin).Stop()
	}
	got, used, err := r(ctx, s, group)
	if err != nil {
		tb.Fatalf("group %s, after %d of %d records: %v", group, got.records, s.records, err)
	}
	if want := (tally{s.records, s.sum()}); got != want {
		tb.Fatalf("group %s read %d records of sum %d, not %d of sum %d", group, got.records, got.sum, want.records, want.sum)
	}
	committed, err := committedRecords(ctx, s, group)
	if err != nil {
		tb.Fatal(err)
	}
	if committed != s.records {
		tb.Fatalf("group %s committed %d of %d records", group, committed, s.records)
	}
	return used
}

// committedRecords returns how many records are below a group's offsets.
func committedRecords(ctx context.Context, s source, group string) (n int, err error) {
	client, err := kgo.NewClient(s.options()...)
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
