// Package tcpproxy is a network between a client and one server that can be cut,
// for tests on the real Kafka: what is cut there does not concern other clients
// of the same broker.
//
// A Kafka client learns the brokers' addresses from the brokers, so it takes a
// kgo.Dialer that dials the proxy, whatever the address.
package tcpproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy passes connections on to its target. Its methods may be called from any
// goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{} // both sides
	state state
	ended bool
}

type state int

const (
	healthy state = iota
	cut
	holed
)

// dialTimeout is for reaching the target.
const dialTimeout = 5 * time.Second

// Listen begins to pass connections to a new port of loopback on to the target,
// a host:port. Close it.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for connections to %s: %w", target, err)
	}
	p := &Proxy{listener: l, target: target, conns: make(map[*net.TCPConn]struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets all connections, and new ones at once, until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = cut
	p.resetAll()
}

// BlackHole lets nothing through any more, and tells nobody, until Heal.
func (p *Proxy) BlackHole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = holed
}

// Heal ends Cut and BlackHole. Connections that were black-holed are reset, as
// what they lost does not come any more.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == holed {
		p.resetAll()
	}
	p.state = healthy
}

// Close ends all connections and returns when nothing of the proxy runs.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.ended = true
	p.resetAll()
	p.mu.Unlock()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

// resetAll ends the connections without a farewell. The lock is held.
func (p *Proxy) resetAll() {
	for c := range p.conns {
		reset(c)
	}
	clear(p.conns)
}

func reset(c *net.TCPConn) {
	// Errors mean that it is gone already.
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(c.(*net.TCPConn)) })
	}
}

// add takes a connection into account, or resets it if there must be none.
func (p *Proxy) add(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.state == cut {
		reset(c)
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c *net.TCPConn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // again, perhaps
}

func (p *Proxy) isHoled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == holed
}

func (p *Proxy) serve(client *net.TCPConn) {
	if !p.add(client) {
		return
	}
	defer p.drop(client)
	c, err := net.DialTimeout("tcp4", p.target, dialTimeout)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	if !p.add(server) {
		return
	}
	defer p.drop(server)
	back := make(chan struct{})
	go func() {
		defer close(back)
		p.pass(client, server)
	}()
	p.pass(server, client)
	<-back
}

// pass copies until one of the connections ends, and then ends both.
func (p *Proxy) pass(to, from *net.TCPConn) {
	defer to.Close()
	defer from.Close()
	_, _ = io.Copy(&holedWriter{p, to}, from)
}

// holedWriter loses what is written while there is a black hole.
type holedWriter struct {
	p  *Proxy
	to *net.TCPConn
}

func (w *holedWriter) Write(b []byte) (int, error) {
	if w.p.isHoled() {
		return len(b), nil
	}
	return w.to.Write(b)
}
