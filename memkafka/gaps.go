package memkafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	maxSkip       = 1_000_000
	markersAtOnce = 10_000 // control records in one request

	// skipProducer is nobody's producer ID: brokers give them out from the other end.
	skipProducer = math.MaxInt64
)

// Skip makes the next n offsets of the partition, 0 to 1,000,000, ones that have no record: the record that is produced
// next gets an offset that is n higher than the one before has. Logs have such gaps where compaction has dropped records
// and where transactions have ended, and code that takes "offset + 1" for "the next record" stumbles over them. If
// nothing is produced behind it, the log ends in the gap: no consumer can get, and few can commit, the offset at its end.
//
// The offsets are taken by control records, commit markers that belong to no transaction. Clients skip those whatever
// their isolation level is; only kgo with kgo.KeepControlRecords shows them, and segmentio/kafka-go, which always does.
// See [Broker.Compact] for offsets that really have nothing.
//
// It fails if there is no such topic or partition, or n is not in its range.
func (b *Broker) Skip(topic string, partition int32, n int64) {
	b.t.Helper()
	if err := b.skip(topic, partition, n); err != nil {
		b.fail("skip offsets of topic %q: %w", topic, err)
	}
}

func (b *Broker) skip(topic string, partition int32, n int64) error {
	if n < 0 || n > maxSkip {
		return fmt.Errorf("%d offsets: give 0 to %d", n, maxSkip)
	}
	release, err := b.takeTurn() // not in the midst of what somebody produces
	if err != nil {
		return err
	}
	defer release()
	if _, err := b.partition(topic, partition); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	for n > 0 {
		leader := b.cluster.LeaderFor(topic, partition)
		markers := min(n, markersAtOnce)
		err := b.writeMarkers(ctx, topic, partition, leader, int(markers))
		switch {
		case errors.Is(err, kerr.NotLeaderForPartition): // moved since we asked
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return b.why(ctx, err)
			}
		case err != nil:
			return b.why(ctx, err)
		default:
			n -= markers
		}
	}
	return nil
}

// writeMarkers appends n commit markers.
func (b *Broker) writeMarkers(ctx context.Context, topic string, partition, leader int32, n int) error {
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic = topic
	t.Partitions = []int32{partition}
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID = skipProducer
	m.Committed = true
	m.Topics = append(m.Topics, t)
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	for range n {
		req.Markers = append(req.Markers, m)
	}
	kresp, err := b.client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	for _, m := range kresp.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
