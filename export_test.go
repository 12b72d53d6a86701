package arroyo

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// LaneRig drives a pipeline as a run does, but without a consumer: through
// spans, a lane on its goroutine and the watermark of one epoch.
type LaneRig struct {
	lane     *recordLane
	tracker  tracker
	progress *progress
	woken    chan struct{}
	misused  chan error
}

// NewLaneRig starts the lane of a pipeline.
func NewLaneRig(pipeline Strategy[*kgo.Record]) *LaneRig {
	r := &LaneRig{woken: make(chan struct{}, 1), misused: make(chan error, 1)}
	r.tracker.wake = func() {
		select {
		case r.woken <- struct{}{}:
		default:
		}
	}
	r.tracker.rejected = func(_ *span, _ int, err error) { r.misuse(err) }
	r.tracker.misused = r.misuse
	r.tracker.watched.Store(true)
	r.tracker.spanSize = spanSize
	r.lane = newRecordLane(&r.tracker.watched, laneEvents{
		wake:   r.tracker.wake,
		failed: func(error) { r.tracker.wake() },
		ended:  func(*recordLane) { r.tracker.wake() },
	})
	r.lane.build = func() (Strategy[*kgo.Record], error) { return pipeline, nil }
	state := &epochState{Epoch: Epoch{Partition{"events", 0}, 1}, ctx: context.Background()}
	r.progress = newProgress(state, &r.tracker, r.lane)
	go r.lane.serve()
	return r
}

func (r *LaneRig) misuse(err error) {
	select {
	case r.misused <- err:
	default:
	}
	r.tracker.wake()
}

// Process hands a fetched slice of records to the lane and waits until all of
// them are settled. It returns the watermark.
func (r *LaneRig) Process(records []*kgo.Record) (int64, error) {
	last := records[len(records)-1]
	r.lane.enqueue(r.progress.append(records, position{last.Offset + 1, last.LeaderEpoch}, time.Now()))
	for r.tracker.inFlight.Load() > 0 {
		<-r.woken
		select {
		case err := <-r.misused:
			return 0, err
		case <-r.lane.done:
			return 0, errors.Join(errors.New("the lane ended before the records were settled"), r.lane.failure())
		default:
		}
	}
	r.progress.advance()
	return r.progress.watermark.offset, nil
}

// Close flushes and closes the pipeline and waits until the lane has ended.
func (r *LaneRig) Close() error {
	r.lane.requestFinish()
	<-r.lane.done
	return r.lane.failure()
}
