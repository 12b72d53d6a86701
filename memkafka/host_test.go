package memkafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func dialerOf(t *testing.T, host *memkafka.Host) dialer {
	t.Helper()
	client, err := kgo.NewClient(host.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	return client.OptValue(kgo.Dialer).(func(ctx context.Context, network, host string) (net.Conn, error))
}

func TestHostCut(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t)
		host, other := broker.Host(), broker.Host()
		dial := dialerOf(t, host)
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		spared, err := dialerOf(t, other)(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer spared.Close()

		host.Cut()
		host.Cut()
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", syscall.ECONNRESET)
		conn.Close()
		_, err = dial(t.Context(), "tcp", address)
		mustOp(t, err, "dial", syscall.ECONNREFUSED)
		if _, err := spared.Write(request()); err != nil {
			t.Error(err)
		}
		response(t, spared)

		host.Heal()
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

func TestHostBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		host := broker.Host()
		dial := dialerOf(t, host)
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		host.BlackHole()
		host.BlackHole()
		if _, err := conn.Write(request()); err != nil { // buffered, as far as the client knows
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, err = conn.Read(make([]byte, 1))
		mustOp(t, err, "read", os.ErrDeadlineExceeded)
		conn.SetReadDeadline(time.Time{})

		begin := time.Now()
		_, err = dial(t.Context(), "tcp", address)
		mustOp(t, err, "dial", os.ErrDeadlineExceeded)
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("the dial hung for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin = time.Now()
		_, err = dial(ctx, "tcp", address)
		mustOp(t, err, "dial", os.ErrDeadlineExceeded)
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the dial hung for %v", took)
		}

		// What was sent is sent again and arrives, and so do dials that had time to wait.
		go func() {
			time.Sleep(2 * time.Second)
			host.Heal()
		}()
		late, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		late.Close()
		response(t, conn)
	})
}

// A client that closes its connection in a black hole is alone in knowing that.
func TestHostBlackHoleHidesTheEnd(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := open(t)
		host := broker.Host()
		conn, err := dialerOf(t, host)(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		host.BlackHole()
		go func() {
			time.Sleep(20 * time.Millisecond)
			broker.Close() // ends all holes, so that nobody hangs in one
		}()
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%v, want the end of the connection", err)
		}
	})
}

func TestHostSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		host := broker.Host()
		dial := dialerOf(t, host)
		host.Slow(100 * time.Millisecond)
		begin := time.Now()
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if took := time.Since(begin); took != 200*time.Millisecond {
			t.Errorf("dialed in %v", took)
		}
		// It is latency, not a rate: many requests at once take no longer than one.
		begin = time.Now()
		for range 50 {
			if _, err := conn.Write(request()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("writing took %v", took)
		}
		for range 50 {
			response(t, conn)
		}
		if took := time.Since(begin); took != 200*time.Millisecond {
			t.Errorf("50 requests took %v", took)
		}
		// What was sent before is not overtaken.
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		host.Heal()
		begin = time.Now()
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		response(t, conn)
		response(t, conn)
		if took := time.Since(begin); took != 100*time.Millisecond {
			t.Errorf("two requests took %v", took)
		}
		begin = time.Now()
		if _, err := conn.Write(request()); err != nil {
			t.Fatal(err)
		}
		response(t, conn)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a request took %v after Heal", took)
		}
		mustContain(t, panicOf(func() { open(t).Host().Slow(-1) }).Error(), "memkafka: ", "give 0 or more")
	})
}

// A latency in real time as well, without a sleep in the test.
func TestHostSlowInRealTime(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 1))
	host := broker.Host()
	host.Slow(5 * time.Millisecond)
	begin := time.Now()
	client, err := kgo.NewClient(append(host.ClientOptions(), kgo.ConsumeTopics("events"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	broker.Produce("events", "a")
	read(t, client, 1)
	if took := time.Since(begin); took < 20*time.Millisecond {
		t.Errorf("dialed and read in %v", took)
	}
}

// A member whose host is cut off, or in a black hole, is replaced when its session ends, and comes back.
func TestMemberOnAHostThatIsCutOff(t *testing.T) {
	for how, cut := range map[string]func(*memkafka.Host){"cut": (*memkafka.Host).Cut, "black hole": (*memkafka.Host).BlackHole} {
		for name, opts := range protocols {
			t.Run(how+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic("events", 4))
					host := broker.Host()
					client, err := kgo.NewClient(append(append(host.ClientOptions(),
						kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit()), opts...)...)
					if err != nil {
						t.Fatal(err)
					}
					defer client.Close()
					broker.WaitStable("g", 1)
					rival := broker.Join("g", "events", opts...)
					broker.WaitStable("g", 2)
					mustOwn(t, rival, 2)

					cut(host)
					begin := time.Now()
					broker.WaitStable("g", 1)
					if took := time.Since(begin); took < 40*time.Second || took > 55*time.Second {
						t.Errorf("took over after %v", took)
					}
					mustOwn(t, rival, 4)
					time.Sleep(time.Minute)
					host.Heal()
					begin = time.Now()
					broker.WaitStable("g", 2)
					if took := time.Since(begin); took > 30*time.Second {
						t.Errorf("back after %v", took)
					}
					mustOwn(t, rival, 2)
				})
			})
		}
	}
}

func mustOwn(t *testing.T, rival *memkafka.Rival, n int) {
	t.Helper()
	if got := rival.Assigned(); len(got) != n {
		t.Errorf("the rival has %v, want %d partitions", got, n)
	}
}

// One client can't reach the brokers; others can.
func ExampleHost() {
	broker, err := memkafka.Open(memkafka.Topic("events", 1))
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	host := broker.Host()
	client, err := kgo.NewClient(host.ClientOptions()...)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	ctx := context.Background()
	fmt.Println(client.Ping(ctx))
	host.Cut()
	fmt.Println(errors.Is(client.Ping(ctx), syscall.ECONNREFUSED))
	host.Heal()
	fmt.Println(client.Ping(ctx))
	// Output:
	// <nil>
	// true
	// <nil>
}
