package memkafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type dialer func(ctx context.Context, network, host string) (net.Conn, error)

// newDialer returns what a kgo client dials with.
func newDialer(t *testing.T, broker *memkafka.Broker) dialer {
	t.Helper()
	client, err := kgo.NewClient(broker.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return client.OptValue(kgo.Dialer).(func(ctx context.Context, network, host string) (net.Conn, error))
}

const address = "127.0.0.1:9092"

func connect(t *testing.T, broker *memkafka.Broker) net.Conn {
	t.Helper()
	conn, err := newDialer(t, broker)(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// request is a request that the broker answers: for what it can do.
func request() []byte {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(0)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

func response(t *testing.T, conn net.Conn) []byte {
	t.Helper()
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	return body
}

func mustOp(t *testing.T, err error, op string, want error) {
	t.Helper()
	opErr, ok := errors.AsType[*net.OpError](err)
	if !ok || opErr.Op != op || opErr.Net != "tcp" || !errors.Is(err, want) {
		t.Errorf("got %#v (%v), want a *net.OpError of %q with %v", err, err, op, want)
	}
	if _, isErrno := errors.AsType[syscall.Errno](want); isErrno {
		if _, ok := errors.AsType[*os.SyscallError](err); !ok {
			t.Errorf("%v is not an *os.SyscallError, by which kgo decides to retry", err)
		}
	}
}

func TestConnTalks(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		if got := conn.RemoteAddr().String(); got != address {
			t.Errorf("remote address %s", got)
		}
		if got := conn.LocalAddr().Network(); got != "tcp" {
			t.Errorf("local network %s", got)
		}
		var first []byte
		for i := range 3 {
			if _, err := conn.Write(request()); err != nil {
				t.Fatal(err)
			}
			got := response(t, conn)
			if i == 0 {
				first = got
			}
			if len(got) == 0 || !bytes.Equal(got, first) {
				t.Errorf("answer %d differs", i)
			}
		}
	})
}

func TestConnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		begin := time.Now()
		conn.SetReadDeadline(begin.Add(3 * time.Second))
		n, err := conn.Read(make([]byte, 1))
		mustOp(t, err, "read", os.ErrDeadlineExceeded)
		if took := time.Since(begin); n != 0 || took != 3*time.Second {
			t.Errorf("%d bytes after %v", n, took)
		}
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", os.ErrDeadlineExceeded)
		if netErr, ok := errors.AsType[net.Error](err); !ok || !netErr.Timeout() {
			t.Errorf("%v is not a timeout", err)
		}

		// A deadline in the past fails at once, a new one gives another chance, and moving it moves who waits.
		conn.SetReadDeadline(begin)
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", os.ErrDeadlineExceeded)
		conn.SetDeadline(time.Now().Add(time.Hour))
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		response(t, conn)
		go func() {
			time.Sleep(time.Second)
			conn.SetReadDeadline(time.Now())
		}()
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", os.ErrDeadlineExceeded)

		conn.SetDeadline(time.Time{})
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		response(t, conn)
	})
}

// A deadline is exact however it was moved before, and one that was taken back does not pass.
func TestConnDeadlineIsMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		fails := func(after time.Duration) {
			t.Helper()
			begin := time.Now()
			_, err := conn.Read(make([]byte, 1))
			mustOp(t, err, "read", os.ErrDeadlineExceeded)
			if took := time.Since(begin); took != after {
				t.Errorf("passed after %v, not %v", took, after)
			}
		}
		in := func(d time.Duration) { conn.SetReadDeadline(time.Now().Add(d)) }
		in(10 * time.Second)
		in(20 * time.Second)
		fails(20 * time.Second)
		in(10 * time.Second)
		in(5 * time.Second)
		fails(5 * time.Second)
		for range 5 { // as clients do for each request
			in(10 * time.Second)
			time.Sleep(3 * time.Second)
			conn.SetReadDeadline(time.Time{})
			time.Sleep(time.Second)
		}
		in(10 * time.Second)
		fails(10 * time.Second)
		in(time.Second)
		conn.SetReadDeadline(time.Time{})
		time.AfterFunc(time.Hour, func() { in(time.Second) }) // of a wait that goes on
		fails(time.Hour + time.Second)
	})
}

// Who writes and does not read is stopped by a bounded buffer.
func TestConnBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		many := bytes.Repeat(request(), 100_000)
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := conn.Write(many)
		mustOp(t, err, "write", os.ErrDeadlineExceeded)
		if n == 0 || n == len(many) {
			t.Fatalf("wrote %d of %d bytes", n, len(many))
		}

		// Reading makes room, and nothing was lost or mixed up.
		conn.SetWriteDeadline(time.Time{})
		size := len(request())
		whole := (n + size - 1) / size
		go func() {
			if _, err := conn.Write(many[n : whole*size]); err != nil {
				t.Error(err)
			}
		}()
		first := response(t, conn)
		for i := range whole - 1 {
			if got := response(t, conn); !bytes.Equal(got, first) {
				t.Fatalf("answer %d differs", i+1)
			}
		}
	})
}

func TestConnClose(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := conn.Read(make([]byte, 1))
			mustOp(t, err, "read", net.ErrClosed)
		})
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		mustOp(t, conn.Close(), "close", net.ErrClosed)
		_, err := conn.Write(request())
		mustOp(t, err, "write", net.ErrClosed)
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", net.ErrClosed)
		mustOp(t, conn.SetDeadline(time.Now()), "set", net.ErrClosed)
	})
}

func TestConnClosedByTheBroker(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t)
		conn := connect(t, broker)
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		answer := response(t, conn)
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		first := make([]byte, 4) // the answer is under way
		if _, err := io.ReadFull(conn, first); err != nil {
			t.Fatal(err)
		}
		broker.Close()
		rest, err := io.ReadAll(conn) // up to a bare io.EOF
		if err != nil || !bytes.Equal(rest, answer) {
			t.Errorf("%d bytes of %d, %v", len(rest), len(answer), err)
		}
		for err == nil { // the broker's two ends close one after the other
			_, err = conn.Write(request())
		}
		mustOp(t, err, "write", syscall.EPIPE)
	})
}

func TestConnManyUsers(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		conn := connect(t, memkafka.New(t))
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		size := 4 + len(response(t, conn))
		const users, each = 8, 50
		var wg sync.WaitGroup
		var total atomic.Int64
		for i := range users {
			wg.Go(func() {
				for range each {
					if _, err := conn.Write(request()); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				buf := make([]byte, 100+i)
				for {
					n, err := conn.Read(buf)
					if total.Add(int64(n)) == int64(users*each*size) {
						conn.Close() // ends the others
					}
					if err != nil {
						mustOp(t, err, "read", net.ErrClosed)
						return
					}
				}
			})
		}
		wg.Wait()
		if got := total.Load(); got != int64(users*each*size) {
			t.Errorf("read %d bytes of %d", got, users*each*size)
		}
	})
}

func TestDial(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		dial := newDialer(t, memkafka.New(t))
		if conn, err := dial(t.Context(), "tcp", "localhost:9092"); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		_, err := dial(t.Context(), "tcp", "127.0.0.1:9093")
		mustOp(t, err, "dial", syscall.ECONNREFUSED)
		_, err = dial(t.Context(), "tcp", "kafka.example.com:9092")
		mustContain(t, err.Error(), "kafka.example.com", "no such host")
		_, err = dial(t.Context(), "tcp", "127.0.0.1")
		mustContain(t, err.Error(), "missing port")
		_, err = dial(t.Context(), "tcp", "127.0.0.1:http")
		mustContain(t, err.Error(), "invalid port")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = dial(ctx, "tcp", address)
		mustOp(t, err, "dial", context.Canceled)
	})
}

func TestDownResetsAndRefuses(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t)
		dial := newDialer(t, broker)
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, err := conn.Read(make([]byte, 1))
			mustOp(t, err, "read", syscall.ECONNRESET)
		})
		broker.Down()
		broker.Down()
		waiting.Wait()
		_, err = conn.Write(request())
		mustOp(t, err, "write", syscall.ECONNRESET)
		_, err = dial(t.Context(), "tcp", address)
		mustOp(t, err, "dial", syscall.ECONNREFUSED)
		_, err = newDialer(t, broker)(t.Context(), "tcp", address)
		mustOp(t, err, "dial", syscall.ECONNREFUSED)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}

		broker.Up()
		conn, err = dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		response(t, conn)
	})
}

func TestDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2))
		broker.Down()
		client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"))
		if err := client.Ping(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("ping: %v", err)
		}
		broker.Produce("events", "a", "b") // as if it had been done before
		if got := len(broker.Records("events")); got != 2 {
			t.Errorf("%d records while it is down", got)
		}
		time.Sleep(time.Minute)
		if n := broker.Members("g"); n != 0 {
			t.Errorf("%d members", n)
		}
		broker.Up()
		read(t, client, 2)
		broker.WaitStable("g", 1)
	})
}

func TestDownInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(2), memkafka.Topic("events", 4))
		client := newClient(t, broker, kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"))
		broker.Produce("events", "a", "b")
		read(t, client, 2)
		broker.WaitStable("g", 1)

		broker.Down()
		broker.Produce("events", "c", "d")
		if n := broker.Members("g"); n != 1 {
			t.Errorf("%d members just after it went down", n)
		}
		time.Sleep(time.Minute)
		if n := broker.Members("g"); n != 0 {
			t.Errorf("%d members a minute after it went down", n)
		}
		broker.Up()
		read(t, client, 2)
		broker.WaitStable("g", 1)
	})
}
