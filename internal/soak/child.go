package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// The program with childEnv set is a member. It prints its figures, in one line,
// for each line that it reads, and ends when its input does.
const childEnv = "ARROYO_SOAK_MEMBER"

// session is after how long the brokers miss a member.
const session = 6 * time.Second

// order is what a member is to do.
type order struct {
	Name     string
	Broker   string // the address to dial, whatever the brokers say
	Protocol string
	Group    string
	Topic    string
	Dead     string // the topic of dead letters
}

// protocols are the ways in which a group can rebalance.
var protocols = map[string][]kgo.Opt{
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"cooperative": nil,
	"kip848":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

// figures are a member's at a moment.
type figures struct {
	Heap       uint64 // bytes that are live, after a collection
	System     uint64 // bytes taken from the system and not given back
	Goroutines int
	Processed  int64
	Assigned   int64 // partitions so far
	Lost       int64
	Letters    int64
	Err        string // how Run ended; only in the last ones
	Ended      bool
}

// counts is what a member counts, and the processor's hooks.
type counts struct{ processed, assigned, lost atomic.Int64 }

func (c *counts) OnAssigned(epochs []arroyo.Epoch)      { c.assigned.Add(int64(len(epochs))) }
func (c *counts) OnLost(epochs []arroyo.Epoch, _ error) { c.lost.Add(int64(len(epochs))) }

func child() int {
	var o order
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &o); err != nil {
		fmt.Fprintln(os.Stderr, "soak: the order cannot be read:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var c counts
	processor, err := o.processor(&c)
	if err == nil {
		go answer(processor, &c)
		err = processor.Run(ctx)
	}
	f := look(processor, &c)
	f.Ended = true
	if err != nil {
		f.Err = err.Error()
	}
	say(f)
	return 0
}

func say(f figures) {
	line, err := json.Marshal(f)
	if err != nil {
		panic(err) // it has nothing that cannot be marshalled
	}
	// An error means that the parent is gone, and so is this process, soon.
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// answer says the figures for each line of input, as long as there is any.
func answer(p *arroyo.Processor, c *counts) {
	lines := bufio.NewReader(os.Stdin)
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			os.Exit(3) // the parent is gone
		}
		say(look(p, c))
	}
}

func look(p *arroyo.Processor, c *counts) figures {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	f := figures{
		Heap:       m.HeapAlloc,
		System:     m.Sys - m.HeapReleased,
		Goroutines: runtime.NumGoroutine(),
		Processed:  c.processed.Load(),
		Assigned:   c.assigned.Load(),
		Lost:       c.lost.Load(),
	}
	if p != nil {
		f.Letters = p.Status().DeadLetters.Delivered
	}
	return f
}

// What user code makes of a record: one in so many is invalid, or fails at first.
const (
	invalidEvery = 500
	failEvery    = 300
)

var (
	errPoison = errors.New("poison")
	errBusy   = errors.New("the world is busy")
)

func (o order) processor(c *counts) (*arroyo.Processor, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: 5 * time.Second}
		return d.DialContext(ctx, "tcp4", o.Broker)
	}
	consumer, err := arroyo.NewConsumer(o.Group, []string{o.Topic},
		arroyo.ClientOptions(
			kgo.SeedBrokers(o.Broker), kgo.Dialer(dial), kgo.ClientID(o.Name), kgo.AlwaysRetryEOF(),
			kgo.SessionTimeout(session), kgo.HeartbeatInterval(time.Second), kgo.RebalanceTimeout(20*time.Second),
		),
		arroyo.ClientOptions(protocols[o.Protocol]...),
		arroyo.GroupSessionTimeout(session))
	if err != nil {
		return nil, err
	}
	var calls atomic.Int64
	task := func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
		switch n := calls.Add(1); {
		case m.Payload.Offset%invalidEvery == 0:
			return nil, arroyo.Invalid(errPoison)
		case n%failEvery == 0:
			return nil, errBusy
		}
		return m.Payload, nil
	}
	store := func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
		c.processed.Add(int64(len(rows)))
		return nil
	}
	retry := strategies.Retry(strategies.RetryPolicy{Attempts: 5, Min: 10 * time.Millisecond, Max: time.Second})
	pipeline := func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
		return strategies.RunTaskInParallel(4, task, strategies.ForEachBatch(100, 200*time.Millisecond, store), retry), nil
	}
	return arroyo.NewPartitionedProcessor(consumer, pipeline,
		arroyo.DrainTimeout(10*time.Second),
		arroyo.MaxInFlight(5000),
		arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: o.Dead}),
		arroyo.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))),
		arroyo.Hooks(c))
}
