package scenarios

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// realHost is a dialer whose connections can be cut and black-holed.
type realHost struct {
	brokers []string

	mu    sync.Mutex
	conns map[*hostConn]struct{}
	cut   bool
	holed chan struct{} // closed when healed; nil if not holed
}

func (h *realHost) ClientOptions() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(h.brokers...), kgo.Dialer(h.dial)}
}

func (h *realHost) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if hole := h.hole(); hole != nil {
		select {
		case <-hole:
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ETIMEDOUT}
		}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	c := &hostConn{Conn: conn, host: h}
	if h.conns == nil {
		h.conns = make(map[*hostConn]struct{})
	}
	h.conns[c] = struct{}{}
	return c, nil
}

func (h *realHost) hole() chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holed
}

// reset closes all connections. The lock is held.
func (h *realHost) reset() {
	for c := range h.conns {
		c.Conn.Close()
	}
	clear(h.conns)
}

func (h *realHost) Cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = true
	h.reset()
}

func (h *realHost) BlackHole() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holed = make(chan struct{})
}

// Heal resets the connections that were black-holed, as what they lost does not
// come any more.
func (h *realHost) Heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = false
	if h.holed != nil {
		close(h.holed)
		h.holed = nil
		h.reset()
	}
}

type hostConn struct {
	net.Conn
	host *realHost
}

func (c *hostConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || c.host.hole() == nil {
			return n, err
		}
		// It did not get through.
	}
}

func (c *hostConn) Write(b []byte) (int, error) {
	if c.host.hole() != nil {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *hostConn) Close() error {
	c.host.mu.Lock()
	delete(c.host.conns, c)
	c.host.mu.Unlock()
	return c.Conn.Close()
}
