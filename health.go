package arroyo

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Health returns nil if the processor does what it should. A member without
// partitions and one without records are healthy; so is one that drains.
// Otherwise the error says what is wrong: Run was not called or has returned, a
// partition is stalled (see StallAfter), or commits have failed for as long.
func (p *Processor) Health() error {
	r := p.current.Load()
	if r == nil {
		return errors.New("arroyo: the processor does not run yet")
	}
	s := r.status()
	var errs []error
	if s.State == StateEnded {
		if s.Err != nil {
			return fmt.Errorf("arroyo: the processor has ended: %w", s.Err)
		}
		return errors.New("arroyo: the processor has ended")
	}
	for _, ps := range s.Partitions {
		if ps.Stalled {
			errs = append(errs, fmt.Errorf("arroyo: %s is stalled at offset %d in step %s for %v",
				ps.Epoch.Partition, ps.OldestOffset, ps.Step, ps.OldestAge.Round(time.Second)))
		}
	}
	if s.CommitErr != nil && s.commitsFailFor > r.config.stallAfter {
		errs = append(errs, fmt.Errorf("arroyo: commits fail for %v: %w", s.commitsFailFor.Round(time.Second), s.CommitErr))
	}
	return errors.Join(errs...)
}

// HealthHandler serves Health to probes: 200 and "ok", or 503 and what is
// wrong. It changes nothing, and serves GET and HEAD only.
func (p *Processor) HealthHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := p.Health(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

// StatusHandler serves Status as JSON. It changes nothing, serves GET and HEAD
// only, and what it tells is topics, offsets, names of steps and errors: no
// payloads.
func (p *Processor) StatusHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isRead(w, r) {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		// An error is that of the connection; nobody is left to tell.
		_ = encoder.Encode(p.Status())
	})
}

// isRead reports whether a request is one that reads; it answers others.
func isRead(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "this only tells how things are: use GET", http.StatusMethodNotAllowed)
	return false
}
