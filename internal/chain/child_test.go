package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// A test binary with childEnv set is a member of a group, in a process of its
// own that can be killed. On standard output it says what happens to it, a line
// for each thing: see newsKind.
const childEnv = "ARROYO_TEST_CHAIN"

// order is what a child is to do.
type order struct {
	Life     string // its name
	Broker   string // the address to dial, whatever the brokers say
	Protocol string
	Level    int // which pipeline it has
	Group    string
	From, To string // topics
}

// session is after how long the brokers miss a member.
const session = 3 * time.Second

// drainTimeout is what a member gets to end in good order.
const drainTimeout = 8 * time.Second

// header is the one that a member gives to each record: from which epoch of
// which life it comes, and from which record.
const header = "by"

func child() int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o); err != nil {
		fmt.Fprintln(os.Stderr, "chain: the order cannot be read:", err)
		return 2
	}
	go func() {
		// The parent has the other end: at its death, whatever it is, this ends.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := o.run(ctx)
	tell(news{Kind: newsEnded, Err: text(err)})
	return 0
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (o order) run(ctx context.Context) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "tcp4", o.Broker)
	}
	// A proxy accepts connections for a broker that is not there, and ends
	// them; without AlwaysRetryEOF kgo takes that for a lack of TLS.
	network := []kgo.Opt{kgo.SeedBrokers(o.Broker), kgo.Dialer(dial), kgo.ClientID(o.Life), kgo.AlwaysRetryEOF()}
	consumer, err := arroyo.NewConsumer(o.Group, []string{o.From},
		arroyo.ClientOptions(network...),
		arroyo.ClientOptions(protocols[o.Protocol]...),
		arroyo.ClientOptions(
			kgo.SessionTimeout(session),
			kgo.RebalanceTimeout(15*time.Second),
			kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.MetadataMinAge(100*time.Millisecond),
		),
		arroyo.GroupSessionTimeout(session))
	if err != nil {
		return err
	}
	producer, err := kgo.NewClient(append(network, kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer producer.Close()

	options := []arroyo.ProcessorOption{
		arroyo.CommitInterval(200 * time.Millisecond),
		arroyo.DrainTimeout(drainTimeout),
		arroyo.MaxInFlight(5000),
		arroyo.Hooks(reporter{}),
		arroyo.Logger(slog.New(logReader{})),
	}
	var processor *arroyo.Processor
	switch o.Level {
	case 0: // one pipeline; a producer of its own
		pipeline := strategies.RunTask(strategies.Plain(pass), strategies.Produce(producer, o.outgoing))
		processor, err = arroyo.NewProcessor(consumer, pipeline, options...)
	case 1: // one for each partition; the consumer's client produces
		processor, err = arroyo.NewPartitionedProcessor(consumer, func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
			return strategies.RunTaskInParallel(4, strategies.Plain(pass), strategies.Produce(consumer.Client(), o.outgoing)), nil
		}, options...)
	case 2: // batches, and tasks that keep the order of each key only
		pipeline := strategies.Batch(200, 50*time.Millisecond, strategies.Unbatch(
			strategies.RunTaskByKey(4, strategies.RecordKey, strategies.Plain(pass), strategies.Produce(producer, o.outgoing))))
		processor, err = arroyo.NewProcessor(consumer, pipeline, options...)
	}
	if err != nil {
		return err
	}
	return processor.Run(ctx)
}

func pass(_ context.Context, r *kgo.Record) (*kgo.Record, error) { return r, nil }

func (o order) outgoing(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
	in := m.Record()
	out := strategies.Outgoing(m, o.To, in.Value)
	by := fmt.Appendf(nil, "%s %d %d %d", o.Life, m.Epoch().N, in.Partition, in.Offset)
	out.Headers = []kgo.RecordHeader{{Key: header, Value: by}}
	return out, nil
}

// newsKind is what a child tells.
type newsKind string

const (
	newsAssigned  newsKind = "assigned"
	newsRevoked   newsKind = "revoked" // drained, committed, given up
	newsLost      newsKind = "lost"
	newsCommitted newsKind = "committed" // the brokers took it
	newsUnclean   newsKind = "unclean"   // work of the epoch was left at a deadline
	newsNoCommit  newsKind = "no commit" // the last commit of a drain failed
	newsEnded     newsKind = "ended"
)

type news struct {
	Kind      newsKind
	At        time.Time
	Partition int32
	Epoch     uint64
	Offset    int64
	Err       string
}

// tell writes a line at once: what was written before SIGKILL is read.
func tell(n news) {
	n.At = time.Now()
	line, err := json.Marshal(n)
	if err != nil {
		panic(err) // it has nothing that cannot be marshalled
	}
	// An error means that the parent is gone, and so is this process, soon.
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// reporter is the processor's hooks.
type reporter struct{}

func (reporter) OnAssigned(epochs []arroyo.Epoch)                 { tellAll(newsAssigned, epochs) }
func (reporter) OnRevoked(epochs []arroyo.Epoch, _ time.Duration) { tellAll(newsRevoked, epochs) }
func (reporter) OnLost(epochs []arroyo.Epoch, _ error)            { tellAll(newsLost, epochs) }

func (reporter) OnCommitted(offsets map[arroyo.Epoch]int64, _ time.Duration, err error) {
	if err != nil {
		return
	}
	for e, at := range offsets {
		tell(news{Kind: newsCommitted, Partition: e.Number, Epoch: e.N, Offset: at})
	}
}

func tellAll(kind newsKind, epochs []arroyo.Epoch) {
	for _, e := range epochs {
		tell(news{Kind: kind, Partition: e.Number, Epoch: e.N})
	}
}

// logReader reads from the log what only it tells, and shows errors.
type logReader struct{}

func (logReader) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (h logReader) WithAttrs([]slog.Attr) slog.Handler             { return h }
func (h logReader) WithGroup(string) slog.Handler                  { return h }

func (logReader) Handle(_ context.Context, r slog.Record) error {
	n := news{}
	why := ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "partition":
			n.Partition = int32(a.Value.Int64())
		case "epoch":
			n.Epoch = a.Value.Uint64()
		}
		why += " " + a.String()
		return true
	})
	switch r.Message {
	case "drain is past its deadline; the next owner goes on here":
		n.Kind = newsUnclean
		tell(n)
	case "commit at the end of a drain failed; what was done since the last one is done again":
		tell(news{Kind: newsNoCommit, Err: why})
	}
	return nil
}
