package arroyo

// commitSettled starts a commit of what was settled since the last one.
func (r *run) commitSettled() {
	if r.commits || r.stopping {
		return
	}
	epochs := make([]*progress, 0, len(r.progress))
	for _, p := range r.progress {
		if !p.draining.Load() {
			epochs = append(epochs, p)
		}
	}
	offsets := r.toCommit(epochs)
	if len(offsets) == 0 {
		return
	}
	r.commits = true
	r.commit.start(func() {
		err := r.consumer.commit(r.ctx, offsets, false)
		r.post(func() {
			r.commits = false
			if failing := err != nil; failing != r.failing {
				r.failing = failing
				if failing {
					r.log.Warn("commit failed; the next one includes its offsets", "error", err)
				} else {
					r.log.Info("commits succeed again")
				}
			}
			if err != nil {
				return
			}
			for s, at := range offsets {
				if p := r.progress[s.Epoch]; p != nil {
					p.committed = max(p.committed, at.offset)
				}
			}
		})
	})
}

// toCommit returns the watermarks that moved. While an older commit may be under
// way, the others are committed again as well, so that it cannot stand.
func (r *run) toCommit(epochs []*progress) map[*epochState]position {
	offsets := make(map[*epochState]position)
	again := r.consumer.lease.commitUnsure()
	for _, p := range epochs {
		p.advance()
		moved := again || p.watermark.offset > p.committed
		if p.known && moved && !p.state.fenced.Load() {
			offsets[p.state] = p.watermark
		}
	}
	return offsets
}
