package memkafka

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// dialTimeout is that of kgo's own dialer, which hosts replace.
const dialTimeout = 10 * time.Second

// network is an internet of one machine with the brokers' ports, and hosts that dial them. Its errors are those that a
// real one gives, because kgo decides by them what is worth another try.
//
// No lock is held while anything waits, and all waiting is on channels: in a synctest bubble both matter.
type network struct {
	tap *tap // sees the requests of all connections

	mu        sync.Mutex
	down      bool
	stopped   map[int]bool // ports of brokers that are stopped
	listeners map[int]*listener
	links     map[*link]struct{}
	holes     map[*host]struct{}
	hosts     int
	closed    bool
}

// host is where one client lives.
type host struct {
	network *network
	ip      net.IP
	kind    hostKind
	cut     bool // guarded by network.mu
	ports   int  // guarded by network.mu

	hole    atomic.Pointer[hole] // that everything to and from it falls into; nil if none
	latency atomic.Int64         // of a write, a time.Duration
}

// hole swallows what is sent until it is closed.
type hole struct{ closed chan struct{} }

type hostKind int

const (
	ordinary hostKind = iota
	exempt            // is connected even while the network is down, and no faults are made for it
)

func newNetwork(tap *tap) *network {
	return &network{
		tap:       tap,
		stopped:   make(map[int]bool),
		listeners: make(map[int]*listener),
		links:     make(map[*link]struct{}),
		holes:     make(map[*host]struct{}),
	}
}

// newHost adds a host with an address of its own, which group descriptions show.
func (n *network) newHost(kind hostKind) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts++
	return &host{
		network: n,
		ip:      net.IPv4(10, byte(n.hosts>>16), byte(n.hosts>>8), byte(n.hosts)),
		kind:    kind,
	}
}

// setDown resets what is connected and refuses dials, or ends that.
func (n *network) setDown(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	if down {
		n.resetLocked(func(l *link) bool { return l.host.kind != exempt })
	}
}

// setStopped does the same for one broker.
func (n *network) setStopped(port int, stopped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !stopped {
		delete(n.stopped, port)
		return
	}
	n.stopped[port] = true
	n.resetLocked(func(l *link) bool { return l.port == port && l.host.kind != exempt })
}

// cutOff takes the host off the network: its connections are reset and its dials refused.
func (h *host) cutOff() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.cut = true
	h.network.resetLocked(func(l *link) bool { return l.host == h })
}

// setCut ends that, or has only dials refused.
func (h *host) setCut(cut bool) {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.cut = cut
}

// setHole lets nothing through to the host or from it, without a word to either side, or ends that.
func (h *host) setHole(on bool) {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	now := h.hole.Load()
	switch {
	case on && now == nil && !h.network.closed:
		h.hole.Store(&hole{closed: make(chan struct{})})
		h.network.holes[h] = struct{}{}
	case !on && now != nil:
		h.hole.Store(nil)
		delete(h.network.holes, h)
		close(now.closed)
	}
}

// close ends all holes, so that what waits in them finds out that the brokers are gone.
func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	hosts := slices.Collect(maps.Keys(n.holes))
	n.mu.Unlock()
	for _, h := range hosts {
		h.setHole(false)
	}
}

// reach waits as a handshake does: for a hole to be closed, and for the packets' way to the broker and back.
func (h *host) reach(ctx context.Context) error {
	for {
		hole := h.hole.Load()
		if hole == nil {
			break
		}
		select {
		case <-hole.closed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if latency := time.Duration(h.latency.Load()); latency > 0 {
		select {
		case <-time.After(2 * latency):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (n *network) resetLocked(which func(*link) bool) {
	for l := range n.links {
		if which(l) {
			l.cut()
			delete(n.links, l)
		}
	}
}

func (n *network) forget(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

// dial is a kgo.Dialer.
func (h *host) dial(ctx context.Context, _, address string) (net.Conn, error) {
	addr, err := parseAddr(address)
	if err != nil {
		return nil, dialError(nil, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, dialError(addr, err)
	}

	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := h.reach(ctx); err != nil {
		return nil, dialError(addr, err)
	}

	n := h.network
	n.mu.Lock()
	ln := n.listeners[addr.Port]
	if ln == nil || h.cut || h.kind != exempt && (n.down || n.stopped[addr.Port]) {
		n.mu.Unlock()
		return nil, dialError(addr, errRefused())
	}
	h.ports++
	l := &link{network: n, host: h, port: addr.Port, reset: make(chan struct{})}
	n.links[l] = struct{}{}
	client, server := l.connect(&net.TCPAddr{IP: h.ip, Port: 32768 + h.ports%28232}, addr)
	n.mu.Unlock()

	select {
	case ln.accept <- newWire(server, n.tap):
		return client, nil
	case <-ln.closed:
		err = errRefused()
	case <-l.reset:
		err = errRefused()
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.forget(l)
	return nil, dialError(addr, err)
}

// listen is what kfake calls in place of net.Listen.
func (n *network) listen(_, address string) (net.Listener, error) {
	addr, err := parseAddr(address)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr.Port] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: addr, Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	ln := &listener{network: n, addr: addr, accept: make(chan net.Conn), closed: make(chan struct{})}
	n.listeners[addr.Port] = ln
	return ln, nil
}

type listener struct {
	network *network
	addr    *net.TCPAddr
	accept  chan net.Conn // unbuffered: a connection is the acceptor's or the dialer's, never nobody's
	closed  chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.addr.Port)
		l.network.mu.Unlock()
		close(l.closed)
	})
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

func brokerAddr(port int) *net.TCPAddr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
}

func parseAddr(address string) (*net.TCPAddr, error) {
	hostname, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if hostname != "127.0.0.1" && hostname != "localhost" {
		return nil, &net.AddrError{Err: "no such host in memkafka's network, all brokers are on 127.0.0.1", Addr: address}
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, &net.AddrError{Err: "invalid port", Addr: address}
	}
	return brokerAddr(int(p)), nil
}

func errRefused() error { return os.NewSyscallError("connect", syscall.ECONNREFUSED) }

func dialError(addr *net.TCPAddr, err error) error {
	opErr := &net.OpError{Op: "dial", Net: "tcp", Err: err}
	if addr != nil { // a nil *net.TCPAddr in a net.Addr would not be nil
		opErr.Addr = addr
	}
	if errors.Is(err, context.DeadlineExceeded) {
		opErr.Err = os.ErrDeadlineExceeded // what net's dialer says: "i/o timeout"
	}
	return opErr
}
