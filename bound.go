package arroyo

import "context"

// AtBound reports whether a Flush under ctx is not about a drain, but made
// because as much as may be is unsettled and the steps hold all of it back. A
// batch that is larger than the bound would wait for ever otherwise.
func AtBound(ctx context.Context) bool {
	f, ok := ctx.Value(flushKey{}).(*flushSet)
	return ok && f.bound
}

// requestFlushAtBound is requestFlush for the reason that AtBound tells.
func (l *recordLane) requestFlushAtBound(of ...*progress) {
	l.mu.Lock()
	only := l.flush == nil || l.flush.bound
	l.flush = l.flush.add(of)
	l.flush.bound = only
	l.idle = false
	l.mu.Unlock()
	l.signal()
}
