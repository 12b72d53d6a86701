package memkafka

import (
	"io"
	"sync"
	"syscall"
	"time"
)

const (
	minStream = 4 << 10
	maxStream = 256 << 10 // bytes under way in one direction, about what a socket has on a local network
)

// stream is one direction of a connection: a ring buffer that grows up to maxStream bytes. At most one goroutine reads
// and one writes at a time.
//
// The reader waits for readable only after it found the buffer empty, the writer for writable only after it found it
// full. So a token is sent when the buffer stops being empty, or full, and none is sent in between. A reader that found
// bytes which are still on their way waits for the time at which they arrive.
type stream struct {
	readable, writable chan struct{} // one token

	mu           sync.Mutex
	buf          []byte
	head, length int
	late         []arrival // of the last bytes in the buffer, in order
	lateLength   int       // how many bytes that are
	writerClosed bool      // io.EOF once the buffer is empty
	readerClosed bool
}

// arrival is when the reader may see a number of bytes.
type arrival struct {
	at     time.Time
	length int
}

func newStream() *stream {
	return &stream{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// take moves up to len(p) bytes out of the buffer. It returns io.EOF if there will be no more, and if there will be more
// at a time that is known, how long that is from now.
func (s *stream) take(p []byte) (n int, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.length == 0 {
		if s.writerClosed {
			return 0, 0, io.EOF
		}
		return 0, 0, nil
	}
	if len(s.late) > 0 {
		if wait = s.arrive(time.Now()); s.length == s.lateLength {
			return 0, wait, nil
		}
	}
	p = p[:min(len(p), s.length-s.lateLength)]
	full := s.length == maxStream
	for n < len(p) {
		m := copy(p[n:], s.buf[s.head:min(s.head+s.length, len(s.buf))])
		n += m
		s.head = (s.head + m) % len(s.buf)
		s.length -= m
	}
	if full && n > 0 {
		notify(s.writable)
	}
	return n, 0, nil
}

// arrive makes readable what has arrived, and returns when the next bytes will.
func (s *stream) arrive(now time.Time) time.Duration {
	for len(s.late) > 0 {
		if wait := s.late[0].at.Sub(now); wait > 0 {
			return wait
		}
		s.lateLength -= s.late[0].length
		s.late = s.late[1:]
	}
	s.late = nil
	return 0
}

// put moves as much of p into the buffer as there is room for, to arrive after the delay, but never before what was put
// earlier. It returns EPIPE if nobody will read it.
func (s *stream) put(p []byte, delay time.Duration) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readerClosed || s.writerClosed {
		return 0, syscall.EPIPE
	}
	s.grow(s.length + len(p))
	empty := s.length == 0
	n := 0
	for n < len(p) && s.length < len(s.buf) {
		tail := (s.head + s.length) % len(s.buf)
		end := len(s.buf)
		if tail < s.head {
			end = s.head
		}
		m := copy(s.buf[tail:end], p[n:])
		n += m
		s.length += m
	}
	if n > 0 && (delay > 0 || len(s.late) > 0) {
		s.delay(n, delay)
	}
	if empty && n > 0 {
		notify(s.readable)
	}
	return n, nil
}

// delay makes the last n bytes arrive later.
func (s *stream) delay(n int, delay time.Duration) {
	at := time.Now().Add(delay)
	if len(s.late) > 0 {
		if last := s.late[len(s.late)-1].at; at.Before(last) {
			at = last
		}
	}
	s.late = append(s.late, arrival{at, n})
	s.lateLength += n
}

// grow makes room for size bytes, or maxStream.
func (s *stream) grow(size int) {
	if size <= len(s.buf) || len(s.buf) == maxStream {
		return
	}
	capacity := max(minStream, len(s.buf))
	for capacity < size && capacity < maxStream {
		capacity *= 2
	}
	buf := make([]byte, capacity)
	if s.length > 0 {
		n := copy(buf, s.buf[s.head:min(s.head+s.length, len(s.buf))])
		copy(buf[n:], s.buf[:s.length-n])
	}
	s.buf, s.head = buf, 0
}

func (s *stream) closeWriter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writerClosed = true
	notify(s.readable)
}

func (s *stream) closeReader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readerClosed = true
	s.buf, s.head, s.length = nil, 0, 0
	s.late, s.lateLength = nil, 0
	notify(s.writable)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
