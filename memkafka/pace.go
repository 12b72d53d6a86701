package memkafka

import "time"

const (
	// In a bubble no time passes while a client and the broker talk. A client that asks again and again at once, as
	// kgo does about a partition that has moved until it is told where to, and is told only when some time has passed,
	// would do so for ever. So an answer takes a moment if there were that many at the same instant.
	maxAtOnce = 2000
	moment    = time.Millisecond
)

// pacer counts answers at the same instant. Who goes on asking gets fewer and
// fewer of them.
type pacer struct {
	at      time.Time
	n       int
	limit   int       // how many there may be
	tripped time.Time // when there were more for the last time
}

// due returns when an answer may go out; zero: now.
func (p *pacer) due() time.Time {
	now := time.Now()
	if !now.Equal(p.at) {
		p.at, p.n = now, 0
		if now.Sub(p.tripped) > time.Second {
			p.limit = maxAtOnce
		}
	}
	if p.n++; p.n <= p.limit {
		return time.Time{}
	}
	p.limit, p.tripped = p.limit/10, now
	return now.Add(moment)
}
