package memkafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// firstPort is the port of the first broker. It exists in the in-memory network only.
const firstPort = 9092

// waitTimeout bounds what waits for somebody. In a bubble it is virtual time.
const waitTimeout = time.Minute

var errClosed = errors.New("the broker is closed")

// Broker is a Kafka cluster in memory, of one or more brokers. Its methods may be called from any goroutine, but with a
// broker of [New] those that can fail should be called from the test's, because they end the test as t.Fatalf does.
type Broker struct {
	t       failer
	cluster *kfake.Cluster
	network *network
	tap     *tap
	log     *eventLog
	brokers int
	seeds   []string
	sasl    *plain.Auth // what the brokers ask for; nil if nothing

	client   *kgo.Client // the broker's own, on a host that is connected even while the brokers are down
	sender   *sender     // of the same client
	producer *producer

	ctx      context.Context // ends when Close begins
	cancel   context.CancelFunc
	inFlight sync.WaitGroup // operations on the cluster
	done     chan struct{}  // closed when Close is through

	mu       sync.Mutex
	closed   bool
	rivals   map[*Rival]struct{}
	rivalSeq int
	front    *front // nil until a client needs TCP

	clients map[*kgo.Client]*host // that are not closed, of hosts for clients; guarded by mu

	stops  stops
	forced map[string]int32 // by group, the generation that a forced rebalance begins; guarded by mu
}

// New starts a broker that is closed when the test ends. It fails the test if an option is bad.
//
// If the test fails, the end of it prints [Broker.Log]. Clients with [Broker.ClientOptions] have to be closed by then, by
// the test function or its cleanups: of one that is not, the end of the test says so with t.Errorf and closes it, so that
// in a bubble its goroutines can end. What can't be ended is a client whose callback never returns: in a bubble that is a
// "deadlock" panic.
func New(t testing.TB, opts ...Option) *Broker {
	t.Helper()
	b, err := open(t, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.endWith(t) })
	return b
}

// Open starts a broker without a test. The caller closes it. Operations on it that fail panic with an error.
func Open(opts ...Option) (*Broker, error) {
	return open(panics{}, opts)
}

// failer is told of operations that failed. It is a testing.TB, or panics.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// panics is the failer of a broker without a test.
type panics struct{}

func (panics) Helper()           {}
func (panics) Fatal(args ...any) { panic(args[0]) }

func open(t failer, opts []Option) (*Broker, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, fmt.Errorf("memkafka: %w", err)
	}

	tap := newTap()
	n := newNetwork(tap)
	ports := make([]int, c.brokers)
	seeds := make([]string, c.brokers)
	for i := range ports {
		ports[i] = firstPort + i // kfake takes port 0 literally
		seeds[i] = brokerAddr(ports[i]).String()
	}
	kopts := []kfake.Opt{
		kfake.Ports(ports...),
		kfake.ListenFn(n.listen),
		kfake.ClusterID("memkafka"),
		// kfake lowers the interval to 100 ms in test binaries. Tests should see what Kafka does by default.
		kfake.BrokerConfigs(map[string]string{"group.consumer.heartbeat.interval.ms": "5000"}),
	}
	if c.sasl != nil {
		kopts = append(kopts, kfake.EnableSASL(), kfake.Superuser("PLAIN", c.sasl.User, c.sasl.Pass))
	}
	cluster, err := kfake.NewCluster(kopts...)
	if err != nil {
		return nil, fmt.Errorf("memkafka: start the cluster: %w", err)
	}
	answerLeaderEpochs(cluster, tap)
	refuseIllegalTopics(cluster, int32(c.brokers-1)) // kfake makes the last broker the controller, for good
	if c.sasl != nil {
		refuseWrongCredentials(cluster, *c.sasl)
	}

	b := &Broker{
		t:        t,
		cluster:  cluster,
		network:  n,
		tap:      tap,
		log:      tap.log,
		brokers:  c.brokers,
		seeds:    seeds,
		sasl:     c.sasl,
		producer: newProducer(),
		done:     make(chan struct{}),
		rivals:   make(map[*Rival]struct{}),
		forced:   make(map[string]int32),
		clients:  make(map[*kgo.Client]*host),
	}
	tap.broker = b
	b.keepCoordinatorsUp()
	b.assignAsWanted()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.client, err = b.newOwnClient(
		kgo.AllowIdempotentProduceCancellation(), // or a produce request that always fails would be tried for ever
	)
	if err != nil {
		cluster.Close()
		return nil, fmt.Errorf("memkafka: make the broker's own client: %w", err)
	}
	b.sender = newSender(b.client)
	for _, topic := range c.topics {
		if err := b.createTopic(topic.name, topic.partitions); err != nil {
			b.Close()
			return nil, fmt.Errorf("memkafka: %w", err)
		}
	}
	if c.loopback {
		if _, err := b.openFront(c.port); err != nil {
			b.Close()
			return nil, fmt.Errorf("memkafka: open to TCP: %w", err)
		}
	}
	return b, nil
}

// ClientOptions returns what a kgo.Client needs to reach the broker: [Host.ClientOptions] of a new [Broker.Host]. Append
// your own options to them.
//
// Each call stands for another host in the network, with an address of its own. Use one call for each client, so that
// one can be cut off without the others.
func (b *Broker) ClientOptions() []kgo.Opt { return b.Host().ClientOptions() }

// newOwnClient makes a client that produces and fetches for the broker's methods.
func (b *Broker) newOwnClient(opts ...kgo.Opt) (*kgo.Client, error) {
	own := append(b.memberOptions(b.network.newHost(exempt)),
		kgo.ClientID("memkafka"),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(10*time.Millisecond),           // how soon it looks again for topics that are new
		kgo.RecordPartitioner(kgo.ManualPartitioner()),    // records go where they say
		kgo.ProducerBatchCompression(kgo.NoCompression()), // zstd is fatal in a bubble
		kgo.ProducerLinger(0),
	)
	return kgo.NewClient(append(own, opts...)...)
}

func (b *Broker) clientOptions(h *host) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(b.seeds...),
		kgo.Dialer(h.dial),
		kgo.DisableClientMetrics(), // Kafka takes them with a plugin only, but kfake does always: an eighth of an idle hour
	}
}

// memberOptions are those of clients that know the credentials.
func (b *Broker) memberOptions(h *host) []kgo.Opt {
	opts := b.clientOptions(h)
	if b.sasl != nil {
		opts = append(opts, kgo.SASL(b.sasl.AsMechanism()))
	}
	return opts
}

// Down makes all brokers unreachable for all clients: open connections are reset and dials are refused, until [Broker.Up].
// It may be called before there is any client. The broker loses nothing, its clock goes on, and so do the session
// timeouts of groups.
//
// The methods of Broker work while it is down, [Broker.Produce] and [Broker.Records] among them: they do not use the
// clients' network. Rivals are clients like any other.
func (b *Broker) Down() {
	b.log.add("all brokers are down")
	b.network.setDown(true)
}

// Up makes the brokers reachable again after [Broker.Down].
func (b *Broker) Up() {
	b.log.add("all brokers are up")
	b.network.setDown(false)
}

// Cluster returns the kfake cluster that does the work, for what this package has no method for: faults, controls,
// moved leaders. kfake is not released in versions and changes often; nothing that is done through this method is
// covered by any promise of compatibility. Do not close it: [Broker.Close] does. Its methods block for ever once the
// broker is closed.
func (b *Broker) Cluster() *kfake.Cluster {
	b.tap.changes.giveUp() // nobody tells us what is done to it
	return b.cluster
}

// Close ends all rivals, without leaving their groups, and the brokers, and returns when that is done. Clients that are
// still open see their connections end and further dials refused. Closing twice is harmless. A broker of [New] is
// closed by the test.
func (b *Broker) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		<-b.done
		return
	}
	b.closed = true
	rivals := make([]*Rival, 0, len(b.rivals))
	for r := range b.rivals {
		rivals = append(rivals, r)
	}
	front := b.front
	b.mu.Unlock()

	defer close(b.done)
	b.cancel()
	for _, r := range rivals {
		r.Die()
	}
	b.tap.stopWatching()
	if front != nil {
		front.close()
	}
	b.inFlight.Wait() // kfake's methods never return once the cluster is closed
	b.client.Close()
	b.cluster.Close()
	b.network.close()
}

// use begins an operation on the cluster, which must not be closed before the returned function is called.
func (b *Broker) use() (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	b.inFlight.Add(1)
	return b.inFlight.Done, nil
}

// fail ends the test, or panics if there is none.
func (b *Broker) fail(format string, args ...any) {
	b.t.Helper()
	b.t.Fatal(fmt.Errorf("memkafka: "+format, args...))
}
