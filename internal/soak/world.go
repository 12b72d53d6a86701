package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

const partitions = 12

// world is all of a soak.
type world struct {
	settings
	kafka       *realkafka.Kafka
	client      *kgo.Client
	admin       *kadm.Client
	topic, dead string
	groups      []*group
	began       time.Time
	produced    atomic.Int64
	awayUntil   atomic.Int64 // the broker, in Unix nanoseconds
}

func newWorld(ctx context.Context, kafka *realkafka.Kafka, s settings) (*world, error) {
	client, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		return nil, err
	}
	w := &world{settings: s, kafka: kafka, client: client, admin: kadm.NewClient(client), topic: "soak", dead: "soak.dead", began: time.Now()}
	few := map[string]*string{
		"retention.ms":    kadm.StringPtr("300000"),
		"segment.ms":      kadm.StringPtr("60000"),
		"segment.bytes":   kadm.StringPtr("16777216"),
		"retention.bytes": kadm.StringPtr("67108864"),
	}
	for topic, n := range map[string]int32{w.topic: partitions, w.dead: 1} {
		if _, err := w.admin.CreateTopic(ctx, n, -1, few, topic); err != nil {
			client.Close()
			return nil, fmt.Errorf("create the topic %s: %w", topic, err)
		}
	}
	for _, protocol := range []string{"eager", "cooperative", "kip848"} {
		g := &group{w: w, protocol: protocol, name: "soak." + protocol}
		if g.watched, err = g.start(); err != nil {
			w.close()
			return nil, err
		}
		w.groups = append(w.groups, g)
	}
	return w, nil
}

// close ends what goes on, at once.
func (w *world) close() {
	for _, g := range w.groups {
		for _, m := range append(g.guests, g.watched) {
			_ = m.kill() // an error of its proxy, which nobody needs any more
		}
	}
	w.client.Close()
}

func (w *world) say(g *group, what string) {
	if w.verbose {
		fmt.Fprintf(os.Stderr, "%7.1fs %s: %s\n", time.Since(w.began).Seconds(), g.protocol, what)
	}
}

// wasAway reports whether the broker is away or was a moment ago.
func (w *world) wasAway() bool { return time.Now().UnixNano() < w.awayUntil.Load() }

// run soaks, lets everything catch up, ends it and judges.
func (w *world) run(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, w.length)
	defer stop()
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		failure error
	)
	start := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil {
				mu.Lock()
				failure = errors.Join(failure, err)
				mu.Unlock()
				stop()
			}
		})
	}
	start(w.produce)
	start(w.restarts)
	for _, g := range w.groups {
		start(g.churn)
	}
	printHead()
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
			if err := w.measure(); err != nil {
				mu.Lock()
				failure = errors.Join(failure, err)
				mu.Unlock()
				stop()
			}
		case <-ctx.Done():
		}
	}
	running.Wait()
	if failure != nil {
		return failure
	}
	if err := w.catchUp(); err != nil {
		return err
	}
	if err := w.measure(); err != nil {
		return err
	}
	for _, g := range w.groups {
		failure = errors.Join(failure, g.leaveAll())
		failure = errors.Join(failure, judge(g.protocol, g.rows, w.warmUp, float64(w.rate)))
	}
	if failure == nil {
		fmt.Printf("\n%d records, %d events: nothing has grown, all have left in good order.\n", w.produced.Load(), w.events())
	}
	return failure
}

func (w *world) events() (n int) {
	for _, g := range w.groups {
		n += g.events
	}
	return n
}

// produce fills the topic at the rate.
func (w *world) produce(ctx context.Context) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	value := []byte(strings.Repeat("v", 200))
	began := time.Now()
	var failed atomic.Pointer[error]
	for n := 0; ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			// What is under way goes on, as the end is judged by it.
			return w.client.Flush(context.Background())
		}
		for due := int(time.Since(began).Seconds() * float64(w.rate)); n < due; n++ {
			w.client.Produce(context.Background(), &kgo.Record{Topic: w.topic, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
					return
				}
				w.produced.Add(1)
			})
		}
		if err := failed.Load(); err != nil {
			return fmt.Errorf("produce: %w", *err)
		}
	}
}

// restarts restarts the broker now and then.
func (w *world) restarts(ctx context.Context) error {
	for w.restart > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(w.restart):
		}
		const long = 2 * time.Minute
		w.awayUntil.Store(time.Now().Add(long).UnixNano())
		// The context is not that of the soak: half a restart helps nobody.
		bounded, cancel := context.WithTimeout(context.Background(), long)
		err := w.kafka.RestartWith(bounded)
		cancel()
		if err != nil {
			return err
		}
		w.awayUntil.Store(time.Now().Add(20 * time.Second).UnixNano())
	}
	return nil
}

// lag returns how many records the group has not committed.
func (w *world) lag(ctx context.Context, group string) (n int64, err error) {
	ends, err := w.admin.ListEndOffsets(ctx, w.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, err
	}
	committed, err := w.admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, _ := committed.Lookup(w.topic, end.Partition)
		n += end.Offset - max(at.At, 0)
	})
	return n, nil
}

// catchUp waits until no group is behind.
func (w *world) catchUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		behind := slices.DeleteFunc(slices.Clone(w.groups), func(g *group) bool {
			n, err := w.lag(ctx, g.name)
			return err == nil && n == 0
		})
		if len(behind) == 0 {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s is behind a minute after the end", behind[0].protocol)
		}
	}
}

// measure adds a row to each group's table.
func (w *world) measure() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, g := range w.groups {
		f, err := g.watched.ask()
		if err != nil {
			return err
		}
		lag, err := w.lag(ctx, g.name)
		if err != nil {
			return fmt.Errorf("%s: its lag: %w", g.protocol, err)
		}
		g.mu.Lock()
		r := row{at: time.Since(w.began), figures: f, lag: lag, guests: len(g.guests), events: g.events}
		g.mu.Unlock()
		g.rows = append(g.rows, r)
		r.print(g.protocol)
	}
	return nil
}
