package strategytest

import (
	"regexp"
	"runtime"
	"strings"
	"time"
)

// goroutine is one of a synctest bubble.
type goroutine struct {
	id     string
	bubble string
	state  string
	text   string // its state and stack
}

var goroutineHeader = regexp.MustCompile(`^goroutine (\d+) \[([^\]]*), synctest bubble (\d+)\]`)

// bubbleGoroutines returns those of the bubble that the caller is in.
func bubbleGoroutines() (gs []goroutine) {
	all := goroutines()
	for _, g := range all {
		if g.bubble == all[0].bubble {
			gs = append(gs, g)
		}
	}
	return gs
}

// goroutines returns those of all bubbles, that of the caller first if it is in
// one.
func goroutines() (gs []goroutine) {
	buf := make([]byte, 1<<16)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	for text := range strings.SplitSeq(string(buf), "\n\n") {
		if m := goroutineHeader.FindStringSubmatch(text); m != nil {
			gs = append(gs, goroutine{id: m[1], state: m[2], bubble: m[3], text: text})
		}
	}
	return gs
}

// lookEvery is how often, in real time, watchTime looks.
var lookEvery = 3 * time.Second

// watchTime looks, in real time, after a bubble in which virtual time stands
// still because a goroutine waits for a mutex: whoever holds it waits for time
// to pass. Such a test would hang without a word; it ends with a panic that
// shows the goroutine. Call stop when the bubble has ended.
func watchTime() (stop func()) {
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		var waiting map[string]string
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				waiting = lookForMutexes(waiting)
			}
		}
	}()
	return func() { close(done) }
}

// lookForMutexes returns the goroutines that wait for a mutex now, by ID. It
// panics if one of them did at the last look.
func lookForMutexes(last map[string]string) (now map[string]string) {
	now = make(map[string]string)
	for _, g := range goroutines() {
		if !strings.HasPrefix(g.state, "sync.Mutex.") && !strings.HasPrefix(g.state, "sync.RWMutex.") {
			continue
		}
		if last[g.id] == g.text {
			panic("strategytest: virtual time stands still, because a goroutine waits for a mutex: " +
				"is it held while the next step, or a function of the user, is called?\n" + g.text)
		}
		now[g.id] = g.text
	}
	return now
}
