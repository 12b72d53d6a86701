package tcpproxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo/internal/tcpproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers lines with themselves.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, p *tcpproxy.Proxy) *client {
	t.Helper()
	c, err := net.Dial("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// ask sends a line and returns the error of getting it back.
func (c *client) ask(timeout time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("hello\n")); err != nil {
		return err
	}
	_, err := c.lines.ReadString('\n')
	return err
}

func listen(t *testing.T) *tcpproxy.Proxy {
	t.Helper()
	p, err := tcpproxy.Listen(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

const long = 10 * time.Second

func TestCut(t *testing.T) {
	p := listen(t)
	before := dial(t, p)
	if err := before.ask(long); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	if err := before.ask(long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection that was cut: %v, want an error at once", err)
	}
	// Dialing may succeed, and may not.
	if conn, err := net.Dial("tcp4", p.Addr()); err == nil {
		defer conn.Close()
		c := &client{conn, bufio.NewReader(conn)}
		if err := c.ask(long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a new connection while cut: %v, want an error at once", err)
		}
	}
	p.Heal()
	if err := dial(t, p).ask(long); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestBlackHole(t *testing.T) {
	p := listen(t)
	c := dial(t, p)
	if err := c.ask(long); err != nil {
		t.Fatal(err)
	}
	p.BlackHole()
	if err := c.ask(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("in a black hole: %v, want no answer", err)
	}
	if err := dial(t, p).ask(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection in a black hole: %v, want no answer", err)
	}
	p.Heal()
	if err := c.ask(long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Heal a connection that lost something: %v, want an error at once", err)
	}
	if err := dial(t, p).ask(long); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}

func TestCloseTwice(t *testing.T) {
	p := listen(t)
	dial(t, p)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
