package memkafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Loopback opens the broker to clients in other processes from the start, on ports of 127.0.0.1 that are given: port for
// the first broker, and the ones after it for others. With port 0 they are free ones, as [Broker.Addr] takes when it
// opens them.
func Loopback(port int) Option {
	return func(c *config) error {
		if port < 0 || port > 65535 {
			return fmt.Errorf("option Loopback: port %d: give 1 to 65535, or 0 for any that is free", port)
		}
		c.loopback, c.port = true, port
		return nil
	}
}

// Addr returns the address of the first broker, as "127.0.0.1:40123", for clients in other processes and other languages:
// it is what they take for bootstrap.servers. The first call opens a TCP port for each broker, on the loopback interface
// only. They are closed with the broker.
//
// Connections by TCP are led into the broker's own network, to a host that they share, and [Broker.Down] and the like hold
// for them. Clients in this process do better with [Broker.ClientOptions].
//
// Addr fails if no port can be had, and in a synctest bubble: time stands still there while a goroutine waits for a
// socket, so nothing would ever come of it.
func (b *Broker) Addr() string {
	b.t.Helper()
	addr, err := b.openFront(0)
	if err != nil {
		b.fail("open to TCP: %w", err)
	}
	return addr
}

// openFront opens the TCP ports, if they are not.
func (b *Broker) openFront(port int) (addr string, err error) {
	if inBubble() {
		return "", errors.New("not in a synctest bubble, where time stops while a goroutine waits for a socket: make the broker outside of synctest.Test, or give clients of this process Broker.ClientOptions")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errClosed
	}
	if b.front == nil {
		b.front, err = newFront(b.network.newHost(ordinary), b.brokers, port)
		if err != nil {
			return "", err
		}
	}
	return b.front.addrs[firstPort].String(), nil
}

// front lets clients by TCP in: a listener for each broker, whose connections go on in the network.
type front struct {
	host      *host
	addrs     map[int]*net.TCPAddr // by its port in the network, where a broker is reached
	listeners []net.Listener

	ctx    context.Context // ends when close begins
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newFront(h *host, brokers, port int) (*front, error) {
	f := &front{host: h, addrs: make(map[int]*net.TCPAddr)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for i := range brokers {
		at := 0
		if port != 0 {
			at = port + i
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
		if err != nil {
			f.close()
			return nil, fmt.Errorf("broker %d: %w", i, err)
		}
		f.listeners = append(f.listeners, ln)
		f.addrs[firstPort+i] = ln.Addr().(*net.TCPAddr)
	}
	for i, ln := range f.listeners { // not before all addresses are known
		f.wg.Go(func() { f.accept(ln, firstPort+i) })
	}
	return f, nil
}

// close closes all ports and connections, and returns when nothing is left.
func (f *front) close() {
	f.cancel()
	for _, ln := range f.listeners {
		ln.Close()
	}
	f.wg.Wait()
}

func (f *front) accept(ln net.Listener, port int) {
	for {
		c, err := ln.Accept()
		switch {
		case f.ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return
		case err != nil: // out of file descriptors, say
			select {
			case <-time.After(10 * time.Millisecond):
			case <-f.ctx.Done():
			}
		default:
			f.wg.Go(func() { f.serve(c.(*net.TCPConn), port) })
		}
	}
}

// serve leads a connection into the network.
func (f *front) serve(outside *net.TCPConn, port int) {
	inside, err := f.host.dial(f.ctx, "tcp", brokerAddr(port).String())
	if err != nil {
		reset(outside) // refused would be right, but it has been accepted
		return
	}
	stop := context.AfterFunc(f.ctx, func() { outside.Close(); inside.Close() })
	defer stop()

	p := &passage{front: f, waiting: make(map[int32]kmsg.Request)}
	var wg sync.WaitGroup
	wg.Go(func() {
		p.requests(outside, inside)
		inside.Close()
	})
	wg.Go(func() {
		if err := p.responses(inside, outside); errors.Is(err, syscall.ECONNRESET) {
			reset(outside)
		}
		outside.Close()
	})
	wg.Wait()
}

// reset closes the connection in a way that the peer notices.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // then it is an ordinary end
	c.Close()
}
