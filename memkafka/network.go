package memkafka

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// network is an internet of one machine with the brokers' ports, and hosts that dial them. Its errors are those that a
// real one gives, because kgo decides by them what is worth another try.
//
// No lock is held while anything waits, and all waiting is on channels: in a synctest bubble both matter.
type network struct {
	mu        sync.Mutex
	down      bool
	listeners map[int]*listener
	links     map[*link]struct{}
	hosts     int
}

// host is where one client lives.
type host struct {
	network *network
	ip      net.IP
	kind    hostKind
	cut     bool // guarded by network.mu
	ports   int  // guarded by network.mu
}

type hostKind int

const (
	ordinary hostKind = iota
	exempt            // is connected even while the network is down
)

func newNetwork() *network {
	return &network{
		listeners: make(map[int]*listener),
		links:     make(map[*link]struct{}),
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

// cutOff takes the host off the network: its connections are reset and its dials refused.
func (h *host) cutOff() {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.cut = true
	h.network.resetLocked(func(l *link) bool { return l.host == h })
}

func (n *network) resetLocked(which func(*link) bool) {
	for l := range n.links {
		if which(l) {
			close(l.reset)
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

	n := h.network
	n.mu.Lock()
	ln := n.listeners[addr.Port]
	if ln == nil || h.cut || n.down && h.kind != exempt {
		n.mu.Unlock()
		return nil, dialError(addr, errRefused())
	}
	h.ports++
	l := &link{network: n, host: h, reset: make(chan struct{})}
	n.links[l] = struct{}{}
	client, server := l.connect(&net.TCPAddr{IP: h.ip, Port: 32768 + h.ports%28232}, addr)
	n.mu.Unlock()

	select {
	case ln.accept <- server:
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
