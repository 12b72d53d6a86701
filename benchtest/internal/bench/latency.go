package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// Latencies are what records took from the call that produced them until the
// work on them was done.
type Latencies struct{ took []int64 }

// NewLatencies has room for those of a source.
func NewLatencies(s Source) *Latencies { return &Latencies{make([]int64, 0, s.Records)} }

// stampSize is how many bytes of a value say which record it is and when it was
// produced. Timestamps of Kafka are in milliseconds.
const stampSize = 16

func stamp(value []byte) {
	binary.BigEndian.PutUint64(value[8:], uint64(time.Now().UnixNano()))
}

// add is called by one goroutine.
func (l *Latencies) add(value []byte) {
	l.took = append(l.took, time.Now().UnixNano()-int64(binary.BigEndian.Uint64(value[8:])))
}

// Quantile returns the latency that a share of the records had at the most.
func (l *Latencies) Quantile(q float64) time.Duration {
	if len(l.took) == 0 {
		return 0
	}
	slices.Sort(l.took)
	return time.Duration(l.took[min(len(l.took)-1, int(q*float64(len(l.took))))])
}

// BareLatency is Bare, and ArroyoLatency Shared; they note when records are
// done.
func BareLatency(l *Latencies) Reader {
	return Reader{"bare", bareLoop{cost: None, latencies: l}.read}
}

func ArroyoLatency(l *Latencies) Reader {
	return Reader{"arroyo", processor{cost: None, latencies: l}.read}
}

// HighestRate returns the highest rate, in records a second, with which a bare
// loop keeps up for some seconds.
func HighestRate(ctx context.Context, seconds int) (int, error) {
	rate, err := burst(ctx)
	for err == nil {
		var ok bool
		if ok, err = keepsUp(ctx, rate, seconds); ok {
			return rate, nil
		}
		rate = rate * 9 / 10
	}
	return 0, err
}

// burst returns how many records a second get from a producer to a bare loop
// when it produces as fast as it can. That is in batches which are as large as
// can be, and so faster than records that come evenly.
func burst(ctx context.Context) (rate int, err error) {
	const records = 300_000
	s, stop, err := StartBroker(Layout{Records: records, Partitions: 8, Rate: 1 << 30})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	used, err := Bare(None).Run(ctx, s, "burst")
	if err != nil {
		return 0, err
	}
	return int(records / used.Elapsed.Seconds()), nil
}

// keepsUp reports whether a bare loop does at a rate: if not, it is farther
// behind from one moment to the next.
func keepsUp(ctx context.Context, rate, seconds int) (ok bool, err error) {
	const behind = 20 * time.Millisecond
	s, stop, err := StartBroker(Layout{Records: seconds * rate, Partitions: 8, Batch: 1, Rate: rate})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	took := NewLatencies(s)
	if _, err := BareLatency(took).Run(ctx, s, "keeps up"); err != nil {
		return false, err
	}
	return took.Quantile(0.5) < behind, nil
}
