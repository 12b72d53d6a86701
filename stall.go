package arroyo

import "time"

// stallCheck is how often stalls are looked for.
func (r *run) stallCheck() time.Duration {
	return min(max(r.config.stallAfter/10, 100*time.Millisecond), 10*time.Second)
}

// reportStalls tells of partitions whose oldest record has been here for too
// long: once, and again when it goes on.
func (r *run) reportStalls(now time.Time) {
	for _, p := range r.progress {
		if p.inFlight.Load() == 0 && !p.stalled {
			continue
		}
		_, since, ok := p.oldest()
		if stalled := ok && now.Sub(since) > r.config.stallAfter; stalled == p.stalled {
			continue
		}
		s := r.partitionStatus(p, now)
		stalled := s.Stalled
		if stalled == p.stalled {
			continue // it was settled just now
		}
		p.stalled = stalled
		if stalled {
			r.log.Warn("partition is stalled: its oldest record is not settled", append(epochAttrs(p.state.Epoch),
				"offset", s.OldestOffset, "step", s.Step, "age", s.OldestAge.Round(time.Millisecond))...)
		} else {
			r.log.Info("partition goes on", append(epochAttrs(p.state.Epoch), "offset", s.Watermark)...)
		}
		r.tell(func(hs hooks) { hs.stalled(s, stalled) })
	}
}
