package memkafka

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// link is one connection, as the network sees it.
type link struct {
	network *network
	host    *host
	port    int           // of the broker
	reset   chan struct{} // closed when the connection is cut
	streams [2]*stream
}

// connect returns the two ends of the link.
func (l *link) connect(clientAddr, serverAddr *net.TCPAddr) (client, server *conn) {
	up, down := newStream(), newStream()
	l.streams = [2]*stream{up, down}
	end := func(in, out *stream, local, remote net.Addr) *conn {
		return &conn{
			link:          l,
			in:            in,
			out:           out,
			local:         local,
			remote:        remote,
			closed:        make(chan struct{}),
			reading:       make(chan struct{}, 1),
			writing:       make(chan struct{}, 1),
			readDeadline:  newDeadline(in.readable),
			writeDeadline: newDeadline(out.writable),
		}
	}
	return end(down, up, clientAddr, serverAddr), end(up, down, serverAddr, clientAddr)
}

// cut resets the connection.
func (l *link) cut() {
	close(l.reset)
	for _, s := range l.streams {
		notify(s.readable)
		notify(s.writable)
	}
}

// conn is one end of a link. It behaves as a TCP connection does: writes return when they are buffered, the peer of a
// closed end reads what was written and then io.EOF, and a cut loses what is under way.
//
// Whoever waits to read or to write waits for one channel, the stream's token: selects over all that can happen are a
// good part of what an idle hour costs in a bubble. So whatever ends a wait sends the token.
type conn struct {
	link          *link
	in, out       *stream
	local, remote net.Addr

	closed           chan struct{}
	once             sync.Once
	reading, writing chan struct{} // locks that can be waited for in a select; a stream has one waiter a side

	readDeadline, writeDeadline *deadline
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.lock(c.reading, c.readDeadline); err != nil {
		return 0, c.opError("read", err)
	}
	n, err := c.read(p)
	<-c.reading
	if err != nil && err != io.EOF { // which is bare, as net's is
		err = c.opError("read", err)
	}
	return n, err
}

func (c *conn) read(p []byte) (int, error) {
	for {
		if err := c.state(c.readDeadline); err != nil {
			return 0, err
		}
		if hole := c.link.host.hole.Load(); hole != nil {
			c.waitInHole(hole)
			continue
		}
		n, wait, err := c.in.take(p)
		if err != nil || n > 0 || len(p) == 0 {
			return n, err
		}
		if wait > 0 {
			c.waitOnTheWay(wait)
			continue
		}
		<-c.in.readable
	}
}

// waitInHole waits until the hole is closed. What is under way gets through then, as what a TCP sends again does.
func (c *conn) waitInHole(hole *hole) {
	select {
	case <-hole.closed:
	case <-c.in.readable: // or something has ended the wait
	}
}

// waitOnTheWay waits until something arrives that has been sent already.
func (c *conn) waitOnTheWay(wait time.Duration) {
	arrived := time.NewTimer(wait)
	defer arrived.Stop()
	select {
	case <-arrived.C:
	case <-c.in.readable:
	}
}

func (c *conn) Write(p []byte) (int, error) {
	delay := time.Duration(c.link.host.latency.Load())
	if err := c.lock(c.writing, c.writeDeadline); err != nil {
		return 0, c.opError("write", err)
	}
	n, err := c.write(p, delay)
	<-c.writing
	if err != nil {
		err = c.opError("write", err)
	}
	return n, err
}

func (c *conn) write(p []byte, delay time.Duration) (written int, err error) {
	for {
		if err := c.state(c.writeDeadline); err != nil {
			return written, err
		}
		n, err := c.out.put(p[written:], delay)
		written += n
		if err != nil {
			if isClosed(c.closed) { // closed between the check and the attempt
				err = net.ErrClosed
			}
			return written, err
		}
		if written == len(p) {
			return written, nil
		}
		<-c.out.writable
	}
}

// lock takes one of the locks, mostly without a wait: few read or write a connection from two goroutines.
func (c *conn) lock(lock chan struct{}, d *deadline) error {
	select {
	case lock <- struct{}{}:
		return nil
	default:
		return c.waitForLock(lock, d)
	}
}

func (c *conn) waitForLock(lock chan struct{}, d *deadline) error {
	select {
	case lock <- struct{}{}:
		return nil
	case <-c.closed:
		return net.ErrClosed
	case <-d.over():
		return os.ErrDeadlineExceeded
	}
}

// state says why nothing can be read or written any more, whatever is buffered.
func (c *conn) state(d *deadline) error {
	switch {
	case isClosed(c.closed):
		return net.ErrClosed
	case isClosed(c.link.reset):
		return syscall.ECONNRESET
	case isClosed(d.over()):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *conn) opError(op string, err error) error {
	if _, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, err)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

func (c *conn) Close() error {
	err := c.opError("close", net.ErrClosed)
	c.once.Do(func() {
		err = nil
		close(c.closed)
		c.out.closeWriter()
		c.in.closeReader()
		notify(c.in.readable)
		notify(c.out.writable)
		c.readDeadline.stop()
		c.writeDeadline.stop()
		c.link.network.forget(c.link)
	})
	return err
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(c.readDeadline, t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(c.writeDeadline, t) }

func (c *conn) setDeadline(d *deadline, t time.Time) error {
	if isClosed(c.closed) {
		return c.opError("set", net.ErrClosed)
	}
	d.set(t)
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
