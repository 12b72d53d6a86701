package bench

import (
	"context"
	"encoding/binary"
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

// HighestRate returns how many records a second get from a producer to a bare
// loop when it produces as fast as it can.
func HighestRate(ctx context.Context, records int) (int, error) {
	s, stop, err := StartBroker(Layout{Records: records, Partitions: 8, Rate: 1 << 30})
	if err != nil {
		return 0, err
	}
	defer stop()
	used, err := Bare(None).Run(ctx, s, "highest")
	if err != nil {
		return 0, err
	}
	return int(float64(records) / used.Elapsed.Seconds()), nil
}
