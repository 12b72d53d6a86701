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
}

// connect returns the two ends of the link.
func (l *link) connect(clientAddr, serverAddr *net.TCPAddr) (client, server *conn) {
	up, down := newStream(), newStream()
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
			readDeadline:  newDeadline(),
			writeDeadline: newDeadline(),
		}
	}
	return end(down, up, clientAddr, serverAddr), end(up, down, serverAddr, clientAddr)
}

// conn is one end of a link. It behaves as a TCP connection does: writes return when they are buffered, the peer of a
// closed end reads what was written and then io.EOF, and a cut loses what is under way.
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
	passed := c.readDeadline.wait()
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-c.closed:
		return 0, c.opError("read", net.ErrClosed)
	case <-passed:
		return 0, c.opError("read", os.ErrDeadlineExceeded)
	}
	for {
		if err := c.state(passed); err != nil {
			return 0, c.opError("read", err)
		}
		if hole := c.link.host.hole.Load(); hole != nil {
			// What is under way gets through when the hole is closed, as what a TCP sends again does.
			select {
			case <-hole.closed:
			case <-c.closed:
			case <-c.link.reset:
			case <-passed:
			}
			continue
		}
		n, wait, err := c.in.take(p)
		if err == io.EOF {
			return 0, io.EOF // bare, as net does
		}
		if n > 0 || len(p) == 0 {
			return n, nil
		}
		var arrived <-chan time.Time
		if wait > 0 {
			arrived = time.After(wait)
		}
		select {
		case <-c.in.readable:
		case <-arrived:
		case <-c.closed:
		case <-c.link.reset:
		case <-passed:
		}
	}
}

func (c *conn) Write(p []byte) (int, error) {
	delay := time.Duration(c.link.host.latency.Load())
	passed := c.writeDeadline.wait()
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-c.closed:
		return 0, c.opError("write", net.ErrClosed)
	case <-passed:
		return 0, c.opError("write", os.ErrDeadlineExceeded)
	}
	written := 0
	for {
		if err := c.state(passed); err != nil {
			return written, c.opError("write", err)
		}
		n, err := c.out.put(p[written:], delay)
		written += n
		if err != nil {
			if isClosed(c.closed) { // closed between the check and the attempt
				err = net.ErrClosed
			}
			return written, c.opError("write", err)
		}
		if written == len(p) {
			return written, nil
		}
		select {
		case <-c.out.writable:
		case <-c.closed:
		case <-c.link.reset:
		case <-passed:
		}
	}
}

// state says why nothing can be read or written any more, whatever is buffered.
func (c *conn) state(passed <-chan struct{}) error {
	switch {
	case isClosed(c.closed):
		return net.ErrClosed
	case isClosed(c.link.reset):
		return syscall.ECONNRESET
	case isClosed(passed):
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
		c.readDeadline.set(time.Time{})
		c.writeDeadline.set(time.Time{})
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
