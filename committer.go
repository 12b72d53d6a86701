package arroyo

import (
	"context"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recommitAfter is how long an offset that does not move may go without being
// committed again. Brokers forget offsets after offsets.retention.minutes:
// since Kafka 2.1 only those of groups without members (KIP-211), but before
// that, those that were not committed for so long.
const recommitAfter = time.Hour

// commitPatience is how long a periodic commit is tried again.
const commitPatience = 10 * time.Second

// commitSettled starts a commit of what was settled since the last one.
func (r *run) commitSettled(now time.Time) {
	r.commitAt = now.Add(r.config.commitInterval)
	if due := r.tracker.commitAt.Load(); due > 0 {
		settled := r.tracker.settled.Load()
		r.overdue = r.commits && (r.overdue || settled >= due)
		r.tracker.commitAt.Store(settled + int64(r.config.commitEvery))
	}
	if r.commits || r.stopping {
		return
	}
	epochs := make([]*progress, 0, len(r.progress))
	for _, p := range r.progress {
		if !p.draining.Load() {
			epochs = append(epochs, p)
		}
	}
	offsets := r.toCommit(epochs, now)
	if len(offsets) == 0 {
		r.failing = nil // what could not be committed is no longer ours
		return
	}
	r.commits = true
	entries := r.logEntries(offsets)
	r.commit.start(func() {
		// Past it the next commit takes over, whose offsets are newer.
		ctx, cancel := context.WithTimeout(r.ctx, max(commitPatience, r.config.commitInterval))
		defer cancel()
		err := r.sendCommit(ctx, offsets, entries)
		r.post(func() { r.committed(offsets, err) })
	})
}

// sendCommit commits. It runs on a goroutine of its own.
func (r *run) sendCommit(ctx context.Context, offsets map[*epochState]position, entries map[*epochState]*kgo.Record) error {
	began := time.Now()
	err := r.consumer.commit(ctx, offsets, false)
	if err == nil && len(entries) > 0 {
		r.writeLog(ctx, entries, offsets)
	}
	if len(offsets) > 0 {
		took := time.Since(began)
		r.post(func() { r.tell(func(hs hooks) { hs.committed(offsets, took, err) }) })
	}
	return err
}

// logEntries returns what the commit log is to be told of a commit.
func (r *run) logEntries(offsets map[*epochState]position) map[*epochState]*kgo.Record {
	if r.config.commitLog == "" {
		return nil
	}
	entries := make(map[*epochState]*kgo.Record, len(offsets))
	for s, at := range offsets {
		e := CommitLogEntry{Group: r.consumer.group, Partition: s.Partition, Offset: at.offset}
		if p := r.progress[s.Epoch]; p != nil {
			e.Timestamp = p.timestamp
		}
		entries[s] = e.Record(r.config.commitLog)
	}
	return entries
}

// onlyCommitted leaves out epochs that were lost before the commit was sent,
// which then was one of the others alone, and those of which more was committed
// meanwhile: who did that writes it.
func (c *Consumer) onlyCommitted(entries map[*epochState]*kgo.Record, offsets map[*epochState]position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(entries, func(s *epochState, _ *kgo.Record) bool { return s.committed != offsets[s].offset })
}

// hasCommitted reports whether the brokers took a commit of the epoch that is at
// least this one.
func (c *Consumer) hasCommitted(s *epochState, at position) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.committed >= at.offset
}

// writeLog writes to the commit log, and waits until it is written. What could
// not be written is committed again, and then written.
func (r *run) writeLog(ctx context.Context, entries map[*epochState]*kgo.Record, offsets map[*epochState]position) {
	err := r.produceLog(ctx, entries, offsets)
	r.post(func() {
		for s := range entries {
			if p := r.progress[s.Epoch]; p != nil {
				p.logged = err == nil
			}
		}
		switch {
		case err != nil && !r.logFails:
			r.log.Warn("commit log cannot be written; those who follow wait", "commit_log_topic", r.config.commitLog, "error", err)
		case err == nil && r.logFails:
			r.log.Info("commit log is written again", "commit_log_topic", r.config.commitLog)
		}
		r.logFails = err != nil
	})
}

// produceLog writes what is committed by now. Of two commits at the same time
// the newer one comes last in the log: it is handed to kgo, which keeps the
// order, by one of them at a time.
func (r *run) produceLog(ctx context.Context, entries map[*epochState]*kgo.Record, offsets map[*epochState]position) error {
	select {
	case r.logging <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var written kgo.FirstErrPromise
	r.consumer.onlyCommitted(entries, offsets)
	for _, record := range entries {
		r.consumer.client.Produce(ctx, record, written.Promise())
	}
	<-r.logging
	return written.Err()
}

// committed notes how a periodic commit went.
func (r *run) committed(offsets map[*epochState]position, err error) {
	r.commits = false
	if r.overdue {
		r.commitAt = time.Now()
	}
	switch {
	case err != nil && r.failing == nil:
		r.failedAt = time.Now()
		r.log.Warn("commit failed; the next one includes its offsets", "error", err)
	case err == nil && r.failing != nil:
		r.log.Info("commits succeed again")
	}
	r.failing = err
	if err != nil {
		return
	}
	now := time.Now()
	for s, at := range offsets {
		if p := r.progress[s.Epoch]; p != nil {
			p.committed = max(p.committed, at.offset)
			p.committedAt = now
		}
	}
}

// toCommit returns the watermarks that moved. While an older commit may be under
// way, the others are committed again as well, so that it cannot stand.
func (r *run) toCommit(epochs []*progress, now time.Time) map[*epochState]position {
	offsets := make(map[*epochState]position)
	again := r.consumer.lease.commitUnsure()
	for _, p := range epochs {
		p.advance()
		moved := again || p.watermark.offset > p.committed
		if p.known && moved && !p.state.fenced.Load() {
			offsets[p.state] = p.watermark
			continue
		}
		logged := p.logged || r.config.commitLog == ""
		if logged && now.Sub(p.committedAt) < recommitAfter || p.state.fenced.Load() {
			continue
		}
		if p.known {
			offsets[p.state] = p.watermark
		} else if at, ok := r.consumer.startOf(p.state); ok {
			offsets[p.state] = at
		}
	}
	return offsets
}
