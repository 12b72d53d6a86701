package memkafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"
)

// newTCPClient makes a client as another process has it: it knows nothing but the address. It notes where it dials to.
func newTCPClient(t testing.TB, addr string, opts ...kgo.Opt) (client *kgo.Client, dialed func() []string) {
	t.Helper()
	var mu sync.Mutex
	var addrs []string
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(addr),
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			mu.Lock()
			addrs = append(addrs, address)
			mu.Unlock()
			return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
		}),
	}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseAllowingRebalance)
	return client, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Compact(slices.Sorted(slices.Values(addrs)))
	}
}

func TestAddr(t *testing.T) {
	broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 6))
	addr := broker.Addr()
	if again := broker.Addr(); again != addr {
		t.Errorf("the address was %s, and is %s", addr, again)
	}
	if !strings.HasPrefix(addr, "127.0.0.1:") {
		t.Errorf("the address is %s", addr)
	}
	producer, _ := newTCPClient(t, addr)
	quick := kgo.HeartbeatInterval(50 * time.Millisecond) // by which members learn of a rebalance
	consumer, dialed := newTCPClient(t, addr, quick, kgo.ConsumerGroup("ingest"), kgo.ConsumeTopics("events"))
	rival := broker.Join("ingest", "events", quick) // by the network in memory, at the same time
	memkafka.Start(t, consume(consumer))
	broker.WaitStable("ingest", 2)
	for p := range int32(6) {
		r := &kgo.Record{Topic: "events", Partition: p, Value: []byte("a")}
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	rival.Leave()
	broker.WaitStable("ingest", 1)
	broker.WaitCaughtUp("ingest", "events")

	details, err := kadm.NewClient(consumer).BrokerMetadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addrs := dialed()
	if len(details.Brokers) != 3 || len(addrs) != 3 {
		t.Errorf("%d brokers, and the client dialed %q", len(details.Brokers), addrs)
	}
	for _, addr := range addrs {
		if strings.Contains(addr, ":909") {
			t.Errorf("the client dialed %q, an address of the network in memory", addr)
		}
	}
}

// All responses that name brokers name those of TCP.
func TestAddrInResponses(t *testing.T) {
	broker := memkafka.New(t, memkafka.Brokers(3), memkafka.Topic("events", 1))
	client, dialed := newTCPClient(t, broker.Addr(), kgo.ConsumeTopics("events"))
	for i := range int32(6) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		read(t, client, 1)
		// The client finds out by NOT_LEADER_FOR_PARTITION, and with it where the leader is.
		if err := broker.Cluster().MoveTopicPartition("events", 0, i%3); err != nil {
			t.Fatal(err)
		}
	}
	cluster, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range cluster.Brokers {
		if !slices.Contains(dialed(), net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))) {
			t.Errorf("broker %d is at %s:%d, and the client dialed %q", b.NodeID, b.Host, b.Port, dialed())
		}
	}
	for _, max := range []*kversion.Versions{kversion.V2_4_0(), kversion.V4_0_0()} { // they ask in different ways
		client, dialed := newTCPClient(t, broker.Addr(), kgo.MaxVersions(max))
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "ingest", []string{"ingest"}
		kresp, err := client.SeedBrokers()[0].Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		resp := kresp.(*kmsg.FindCoordinatorResponse)
		host, port := resp.Host, resp.Port
		for _, c := range resp.Coordinators {
			host, port = c.Host, c.Port
		}
		if conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port)))); err != nil {
			t.Errorf("the coordinator is at %s:%d, the client dialed %q: %v", host, port, dialed(), err)
		} else {
			conn.Close()
		}
	}
}

func TestAddrWithoutAcks(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 1))
	client, _ := newTCPClient(t, broker.Addr(), kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite(), kgo.ConsumeTopics("events"))
	for range 10 {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	read(t, client, 10)
}

// Clients by TCP are on the network, and so is what happens to it.
func TestAddrWhileDown(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 1))
	conn, err := net.Dial("tcp", broker.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := ask(conn); err != nil {
		t.Fatal(err)
	}
	broker.Down()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection reads %v", err)
	}
	conn, err = net.Dial("tcp", broker.Addr())
	if err == nil {
		defer conn.Close()
		err = ask(conn)
	}
	if err == nil {
		t.Error("a broker that is down answered")
	}
	broker.Up()
	conn, err = net.Dial("tcp", broker.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := ask(conn); err != nil {
		t.Error(err)
	}
}

// ask sends a request and reads its response.
func ask(conn net.Conn) error {
	req := kmsg.NewPtrApiVersionsRequest()
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		return err
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(conn, size); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, binary.BigEndian.Uint32(size)))
	return err
}

// What is not Kafka's protocol ends the connection, and nothing else.
func TestAddrWithGarbage(t *testing.T) {
	broker := memkafka.New(t, memkafka.Topic("events", 1))
	for _, garbage := range []string{
		"GET / HTTP/1.1\r\n\r\n",
		"\x00\x00\x00\x00",
		"\x00\x00\x00\x02\x00\x00",
		"\x00\x00\x00\x0a\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff", // an unknown kind
		"\x00\x00\x00\x0a\x00\x03\x7f\xff\x00\x00\x00\x01\xff\xff", // an unknown version
		"\x00\x00\x00\x0a\x00\x03\x00\x00\x00\x00\x00\x01\x7f\xff", // too short
		"\xff\xff\xff\xff",
		"\x00\x00",
	} {
		conn, err := net.Dial("tcp", broker.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(garbage)); err != nil {
			t.Error(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite() // it may be closed already
		_, _ = io.Copy(io.Discard, conn)     // ends, which is what matters
		conn.Close()
	}
	client, _ := newTCPClient(t, broker.Addr())
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAddrCloses(t *testing.T) {
	before := goleak.IgnoreCurrent()
	broker := open(t, memkafka.Brokers(2), memkafka.Topic("events", 2))
	addr := broker.Addr()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"))
	if err != nil {
		t.Fatal(err)
	}
	broker.Produce("events", "a", "b")
	read(t, client, 2)
	broker.Close()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("the port is still open")
	}
	if err := panicOf(func() { broker.Addr() }); err == nil {
		t.Error("a closed broker has an address")
	} else {
		mustContain(t, err.Error(), "the broker is closed")
	}
	client.Close()
	goleak.VerifyNone(t, before)
}

func TestAddrInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := open(t, memkafka.Topic("events", 1))
		err := panicOf(func() { broker.Addr() })
		if err == nil {
			t.Fatal("it has an address")
		}
		mustContain(t, err.Error(), "synctest bubble", "ClientOptions")
		if _, err := memkafka.Open(memkafka.Loopback(0)); err == nil {
			t.Error("Loopback works")
		} else {
			mustContain(t, err.Error(), "synctest bubble")
		}
	})
}

func TestLoopback(t *testing.T) {
	first := memkafka.New(t, memkafka.Loopback(0), memkafka.Topic("events", 1), memkafka.SASL("user", "secret"))
	_, port, err := net.SplitHostPort(first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memkafka.Open(memkafka.Loopback(n)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	}
	first.Close()
	second := memkafka.New(t, memkafka.Loopback(n), memkafka.Topic("events", 1))
	if second.Addr() != net.JoinHostPort("127.0.0.1", port) {
		t.Errorf("asked for port %d, got %s", n, second.Addr())
	}
	client, _ := newTCPClient(t, second.Addr())
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, port := range []int{-1, 65536} {
		if _, err := memkafka.Open(memkafka.Loopback(port)); err == nil {
			t.Errorf("port %d was accepted", port)
		} else {
			mustContain(t, err.Error(), "option Loopback", "give 1 to 65535")
		}
	}
}
