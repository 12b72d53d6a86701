package memkafka

import "testing"

func TestLogChanges(t *testing.T) {
	var c logChanges
	quiet := func(count int64, want bool) (change <-chan struct{}) {
		t.Helper()
		change, got := c.since(count)
		if got != want {
			t.Errorf("nothing has changed: %t, want %t", got, want)
		}
		return change
	}
	at := c.now()
	change := quiet(at, true)
	if isClosed(change) || quiet(at, true) != change {
		t.Error("a change without one")
	}
	c.begin()
	if !isClosed(change) {
		t.Error("nobody was told of a request that begins")
	}
	quiet(at, false)
	quiet(c.now(), false) // it may be at work at any time
	c.begin()
	during := c.now()
	c.end()
	quiet(c.now(), false) // one of the two goes on
	c.end()
	quiet(during, false)
	change = quiet(c.now(), true)
	c.happen()
	if !isClosed(change) {
		t.Error("nobody was told of a change")
	}
	change = quiet(c.now(), true)
	c.giveUp()
	if !isClosed(change) {
		t.Error("nobody was told that changes may come at any time")
	}
	quiet(c.now(), false)
}
