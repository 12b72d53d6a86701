package memkafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxLog is how many lines the log keeps.
const maxLog = 500

// Log returns what has happened at the broker so far, a line for each thing, oldest first: members that joined, got
// partitions, committed, left or were expired; answers that were errors; faults that hit; changes of the network; what
// rivals did. Times are relative to the start of the broker. A line that repeats itself is there once, with a count.
// Fetching and producing are only counted, in the last line. It keeps the last 500 lines.
//
// A test that uses [New] and fails prints it.
func (b *Broker) Log() string { return b.log.text() }

// eventLog is the log.
type eventLog struct {
	start    time.Time
	requests [128]atomic.Int64 // by kind

	mu    sync.Mutex
	lines []logLine // a ring, once it is full
	next  int       // of the ring
	lost  int
}

type logLine struct {
	at    time.Duration
	text  string
	times int
	last  time.Duration // of the repetitions
}

func newEventLog() *eventLog { return &eventLog{start: time.Now()} }

// add notes something that happened.
func (l *eventLog) add(format string, args ...any) {
	at, text := time.Since(l.start), fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.lines); n > 0 {
		if last := &l.lines[(l.next+n-1)%n]; last.text == text {
			last.times++
			last.last = at
			return
		}
	}
	line := logLine{at: at, text: text, times: 1}
	if len(l.lines) < maxLog {
		l.lines = append(l.lines, line)
		return
	}
	l.lines[l.next] = line
	l.next = (l.next + 1) % maxLog
	l.lost++
}

// count counts a request.
func (l *eventLog) count(kind int16) {
	if kind >= 0 && int(kind) < len(l.requests) {
		l.requests[kind].Add(1)
	}
}

func (l *eventLog) text() string {
	l.mu.Lock()
	lines := slices.Concat(l.lines[l.next:], l.lines[:l.next])
	lost := l.lost
	l.mu.Unlock()

	var text strings.Builder
	if lost > 0 {
		fmt.Fprintf(&text, "(%d lines before these are lost)\n", lost)
	}
	for _, line := range lines {
		fmt.Fprintf(&text, "%s  %s", stamp(line.at), line.text)
		if line.times > 1 {
			fmt.Fprintf(&text, " (%d times until %s)", line.times, strings.TrimLeft(stamp(line.last), " "))
		}
		text.WriteByte('\n')
	}
	fmt.Fprintf(&text, "%s  now; requests so far:%s\n", stamp(time.Since(l.start)), l.counts())
	return text.String()
}

func (l *eventLog) counts() string {
	var text strings.Builder
	for kind := range l.requests {
		if n := l.requests[kind].Load(); n > 0 {
			fmt.Fprintf(&text, " %s %d", kmsg.NameForKey(int16(kind)), n)
		}
	}
	if text.Len() == 0 {
		return " none"
	}
	return text.String()
}

// stamp is a time in seconds, to the millisecond.
func stamp(d time.Duration) string { return fmt.Sprintf("%11.3fs", d.Seconds()) }
