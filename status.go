package arroyo

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Status is a snapshot of a processor, for people and probes. It has nothing
// secret in it.
type Status struct {
	State     State
	Group     string
	Member    string // the member ID that the group's coordinator gave; empty before
	Err       error  // what ended the run, or is about to
	CommitErr error  // what commits fail with now

	InFlight      int   // records that are queued or not settled
	InFlightBytes int64 // of these, as MaxInFlightBytes counts them
	Abandoned     int64 // records that were not done at the deadline of a drain, in all
	BoundFlushes  int64 // times that the steps were flushed because the bound was met

	DeadLetters DeadLetterStatus

	Partitions []PartitionStatus // sorted by topic and number
	Steps      []StepStatus      // in the order in which they were first used

	commitsFailFor time.Duration
}

// DeadLetterStatus tells of the dead letters of a run.
type DeadLetterStatus struct {
	Delivered int64
	Pending   int   // rejected messages whose dead letters are not delivered yet
	Err       error // what delivering them fails with now
}

// State says what a processor does.
type State string

// The states of a processor, in their order.
const (
	StateNew      State = "new"      // Run was not called
	StateRunning  State = "running"  // with partitions or without
	StateDraining State = "draining" // finishing what has begun
	StateEnded    State = "ended"    // Run has returned, or is about to
)

// PartitionStatus is how a partition does. Offsets are -1 while they are not
// known.
type PartitionStatus struct {
	Epoch     Epoch
	State     PartitionState
	Position  int64 // of the next record to fetch
	Watermark int64 // below it everything is done
	Committed int64 // the watermark that was committed last in this epoch
	End       int64 // of the log, when it was fetched last
	Lag       int64 // from the watermark to the end; -1 if one is not known

	InFlight      int // records that are queued or not settled
	InFlightBytes int64

	// Of a consumer that follows other groups (see Synchronize): the offset
	// up to which all of them have committed, -1 for others; how far the
	// watermark is from it; and if records wait, for which group ("": it is
	// not known how far the groups are), and for how long none was let through.
	Gate      int64
	GateLag   int64
	GateGroup string
	GatedFor  time.Duration

	// The oldest record that is not settled, if there is one: where it is,
	// for how long since it was fetched, and the step that its pipeline
	// works in, or did last; "dead letter" while its dead letter is not
	// delivered.
	OldestOffset int64 // -1: there is none
	OldestAge    time.Duration
	Step         string
	Stalled      bool // OldestAge is more than StallAfter
}

// PartitionState says what a partition does.
type PartitionState string

// The states of a partition.
const (
	PartitionFlows    PartitionState = "flows"
	PartitionPaused   PartitionState = "paused"   // by Consumer.Pause
	PartitionFull     PartitionState = "full"     // paused until there is room
	PartitionWaiting  PartitionState = "waiting"  // for user code of its last assignment to return
	PartitionStarting PartitionState = "starting" // where it goes on is not known yet
	PartitionFailing  PartitionState = "failing"  // cannot be fetched; tried again
	PartitionDraining PartitionState = "draining" // is being given up
	PartitionGated    PartitionState = "gated"    // waits for other groups (see Synchronize)
)

// StepStatus is what went through a step since the run began; through all
// instances of it, if there is one for each partition.
type StepStatus struct {
	Name     string
	Messages int64            // that were handed to it
	Counts   map[string]int64 // what else it counts
}

// Status returns a snapshot. It may be called at any time, from any goroutine;
// it costs time in proportion to the number of partitions.
func (p *Processor) Status() Status {
	r := p.current.Load()
	if r == nil {
		return Status{State: StateNew, Group: p.consumer.group}
	}
	return r.status()
}

// status returns what is now, or once the loop has ended what was then.
func (r *run) status() Status {
	r.state.Lock()
	defer r.state.Unlock()
	if r.last.State != "" {
		return r.last
	}
	return r.snapshot()
}

// close takes no more posts, and keeps what those see who ask from here on.
func (r *run) close(err error) {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.runPosted()
	r.last = r.snapshot()
	r.last.State, r.last.Err = StateEnded, err
}

func (r *run) snapshot() Status {
	member, _ := r.consumer.client.GroupMetadata()
	s := Status{
		State:         StateRunning,
		Group:         r.consumer.group,
		Member:        member,
		Err:           r.failure,
		CommitErr:     r.failing,
		InFlight:      int(r.tracker.inFlight.Load()),
		InFlightBytes: r.tracker.bytes.Load(),
		Abandoned:     r.left,
		BoundFlushes:  r.boundFlushes,
		DeadLetters:   r.letterStatus(),
		Partitions:    make([]PartitionStatus, 0, len(r.progress)),
		Steps:         r.steps(),
	}
	if r.stopping {
		s.State = StateDraining
	}
	now := time.Now()
	if r.failing != nil {
		s.commitsFailFor = now.Sub(r.failedAt)
	}
	for _, p := range r.progress {
		s.Partitions = append(s.Partitions, r.partitionStatus(p, now))
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(comparePartitions(a.Epoch.Partition, b.Epoch.Partition), cmp.Compare(a.Epoch.N, b.Epoch.N))
	})
	return s
}

func (r *run) partitionStatus(p *progress, now time.Time) PartitionStatus {
	p.advance()
	position, end, paused := r.consumer.flowOf(p.state)
	s := PartitionStatus{
		Epoch:         p.state.Epoch,
		State:         partitionState(p, paused),
		Position:      position,
		Watermark:     position,
		Committed:     p.committed,
		End:           end,
		Lag:           -1,
		InFlight:      p.pending(),
		InFlightBytes: p.bytes.Load(),
		OldestOffset:  -1,
	}
	if p.known {
		s.Watermark = p.watermark.offset
	}
	limit, group, since, waits := r.consumer.gateOf(p.state)
	s.Gate, s.GateLag = limit, -1
	if limit >= 0 && s.Watermark >= 0 {
		s.GateLag = max(0, limit-s.Watermark)
	}
	if waits {
		s.GateGroup, s.GatedFor = group, now.Sub(since)
		if s.State == PartitionFlows {
			s.State = PartitionGated
		}
	}
	if s.End >= 0 && s.Watermark >= 0 {
		s.Lag = max(0, s.End-s.Watermark)
	}
	if offset, since, ok := p.oldest(); ok {
		s.OldestOffset, s.OldestAge = offset, now.Sub(since)
		s.Step = p.oldestStep()
		s.Stalled = s.OldestAge > r.config.stallAfter
	}
	return s
}

func partitionState(p *progress, paused pauseReason) PartitionState {
	switch {
	case p.draining.Load():
		return PartitionDraining
	case paused&pausedForLane != 0:
		return PartitionWaiting
	case paused&pausedByUser != 0:
		return PartitionPaused
	case paused&(pausedForError) != 0:
		return PartitionFailing
	case paused&(pausedForPosition|pausedForStart) != 0:
		return PartitionStarting
	case paused&pausedForRoom != 0:
		return PartitionFull
	case paused&pausedForGate != 0:
		return PartitionGated
	}
	return PartitionFlows
}

// steps sums up what the steps of all lanes count.
func (r *run) steps() []StepStatus {
	sum := make(map[string]*StepStatus, len(r.stepsLeft))
	for name, s := range r.stepsLeft {
		sum[name] = &StepStatus{name, s.Messages, maps.Clone(s.Counts)}
	}
	names := slices.Clone(r.stepNames)
	for l := range r.lanes {
		names = l.addSteps(names, sum)
	}
	steps := make([]StepStatus, len(names))
	for i, name := range names {
		steps[i] = *sum[name]
	}
	return steps
}

// keepSteps keeps what the steps of a lane counted that has ended.
func (r *run) keepSteps(l *recordLane) { r.stepNames = l.addSteps(r.stepNames, r.stepsLeft) }

// addSteps adds what the lane's steps count to sum, and new names to names.
func (l *Lane) addSteps(names []string, sum map[string]*StepStatus) []string {
	l.mu.Lock()
	steps := slices.Clone(l.steps)
	l.mu.Unlock()
	for _, step := range steps {
		name := step.Name()
		s := sum[name]
		if s == nil {
			s = &StepStatus{Name: name}
			sum[name] = s
			names = append(names, name)
		}
		messages, counts := step.status()
		s.Messages += messages
		if s.Counts == nil && len(counts) > 0 {
			s.Counts = make(map[string]int64, len(counts))
		}
		for what, n := range counts {
			s.Counts[what] += n
		}
	}
	return names
}

// MarshalJSON writes errors as their texts and durations as Go does, "1.5s".
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	return json.Marshal(struct {
		plain
		Err       string `json:",omitempty"`
		CommitErr string `json:",omitempty"`
	}{plain(s), errorText(s.Err), errorText(s.CommitErr)})
}

// MarshalJSON writes the error as its text.
func (s DeadLetterStatus) MarshalJSON() ([]byte, error) {
	type plain DeadLetterStatus
	return json.Marshal(struct {
		plain
		Err string `json:",omitempty"`
	}{plain(s), errorText(s.Err)})
}

// MarshalJSON writes durations as Go does, "1.5s".
func (p PartitionStatus) MarshalJSON() ([]byte, error) {
	type plain PartitionStatus
	return json.Marshal(struct {
		plain
		OldestAge string
		GatedFor  string
	}{plain(p), p.OldestAge.String(), p.GatedFor.String()})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
