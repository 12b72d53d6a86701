package memkafka

import "sync"

// logChanges knows whether what fetches return may have changed. All that changes it reports that, as it begins, or at the
// latest when it is done.
type logChanges struct {
	mu      sync.Mutex
	count   int64         // of changes so far
	open    int           // requests under way that may change something
	anytime bool          // it may change without a request, from now on
	change  chan struct{} // closed at the next change; nil if nobody waits for it
	// epochs has, by fetch session, by how many kfake's epoch is behind the client's: that of the answers that were not
	// kfake's.
	epochs map[int32]int32
}

// begin is called before kfake gets a request that may change something.
func (c *logChanges) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
	c.happenLocked()
}

// end is called when it has answered. If it never does, it may still change something, and open is never 0 again.
func (c *logChanges) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	c.happenLocked()
}

// happen is called after something was changed without a request.
func (c *logChanges) happen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.happenLocked()
}

// giveUp is called when something may happen without a word.
func (c *logChanges) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anytime = true
	c.happenLocked()
}

func (c *logChanges) happenLocked() {
	c.count++
	if c.change != nil {
		close(c.change)
		c.change = nil
	}
}

func (c *logChanges) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// since tells whether nothing has changed since then, and how to wait for a change.
func (c *logChanges) since(count int64) (change <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.anytime || c.open > 0 || c.count != count {
		return nil, false
	}
	if c.change == nil {
		c.change = make(chan struct{})
	}
	return c.change, true
}

// fallBehind notes that kfake has not seen a fetch of the session.
func (c *logChanges) fallBehind(head fetchHead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epochs == nil {
		c.epochs = make(map[int32]int32)
	}
	c.epochs[head.session]++
}

// behind returns how many fetches of the request's session kfake has not seen.
func (c *logChanges) behind(head fetchHead) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if head.epoch <= 0 { // the session ends
		delete(c.epochs, head.session)
	}
	return c.epochs[head.session]
}
