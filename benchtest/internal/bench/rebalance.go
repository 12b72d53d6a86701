package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Rebalanced is what the joining of a member costs.
type Rebalanced struct {
	First time.Duration // from when it was started to its first record
	Gap   time.Duration // the longest time in which no member got a record, from then on
}

// Rebalance lets a second member join one that reads what comes at a rate.
func Rebalance(ctx context.Context, s Source, m Member, group string, protocol []kgo.Opt) (r Rebalanced, err error) {
	const before, after = 1 * time.Second, 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var (
		mu     sync.Mutex
		joined time.Time // the second member
		last   time.Time
		errs   [2]error
		work   sync.WaitGroup
	)
	flows, first := make(chan struct{}), make(chan struct{})
	seen := func(who int) func() {
		var once sync.Once
		is := []chan struct{}{flows, first}[who]
		return func() {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if !joined.IsZero() {
				r.Gap = max(r.Gap, now.Sub(last))
			}
			last = now
			once.Do(func() {
				if who == 1 {
					r.First = now.Sub(joined)
				}
				close(is)
			})
		}
	}
	start := func(who int) {
		count := seen(who)
		work.Go(func() {
			if errs[who] = m.Run(ctx, s, group, protocol, count); errs[who] != nil {
				cancel()
			}
		})
	}
	wait := func(ready <-chan struct{}, more time.Duration) bool {
		select {
		case <-ready:
		case <-ctx.Done():
			return false
		}
		select {
		case <-time.After(more):
			return true
		case <-ctx.Done():
			return false
		}
	}
	start(0)
	time.AfterFunc(s.joinTime(), s.begin)
	if wait(flows, before) {
		mu.Lock()
		joined = time.Now()
		mu.Unlock()
		start(1)
		wait(first, after)
	}
	late := ctx.Err()
	cancel()
	work.Wait()
	mu.Lock()
	defer mu.Unlock()
	return r, errors.Join(late, errs[0], errs[1])
}
