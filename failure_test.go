package arroyo_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// A failure names the step, the partition and the offset; what was settled
// before it is committed, and the group is left.
func TestFailureEndsTheRun(t *testing.T) {
	broken := errors.New("disk full")
	bad := func(m arroyo.Message[*kgo.Record]) bool { return m.Record().Partition == 1 && m.Record().Offset == 3 }
	task := func(err error) arroyo.Strategy[*kgo.Record] {
		return strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (int, error) {
			if bad(m) {
				if err == nil {
					panic(broken)
				}
				return 0, err
			}
			return 0, nil
		}, strategies.Noop[int](), strategies.Name("convert"))
	}
	for _, tt := range []struct {
		name     string
		pipeline arroyo.Strategy[*kgo.Record]
		step     string
		panics   bool
		settled  int64 // of the bad record's partition
	}{
		{"task", task(broken), "convert", false, 3},
		{"panic in a task", task(nil), "convert", true, 3},
		{"invalid", task(arroyo.Invalid(broken)), "convert", false, 3},
		{"panic in a filter", strategies.Filter(func(m arroyo.Message[*kgo.Record]) bool {
			if bad(m) {
				panic(broken)
			}
			return false
		}, strategies.Noop[*kgo.Record](), strategies.Name("convert")), "convert", true, 3},
		{"ForEach", strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if bad(m) {
				return broken
			}
			return nil
		}, strategies.Name("convert")), "convert", false, 3},
		{"a step of the user's own", ownStep{arroyo.ForwardTo(strategies.Noop[*kgo.Record]()), bad, broken}, "pipeline", true, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				processor, err := arroyo.NewProcessor(newConsumer(t, broker), tt.pipeline, quiet)
				if err != nil {
					t.Fatal(err)
				}
				stop := memkafka.Start(t, processor.Run)
				produce(broker, 6) // three each
				broker.WaitCommitted(group, topic, 6)
				produce(broker, 10)
				time.Sleep(time.Minute)
				err = stop()
				var at *arroyo.StepError
				if !errors.As(err, &at) || !errors.Is(err, broken) {
					t.Fatalf("Run: %v, want a StepError for what is broken", err)
				}
				if at.Step != tt.step || at.Epoch.Partition != (arroyo.Partition{Topic: topic, Number: 1}) || at.Offset != 3 {
					t.Errorf("the error says step %q, %s, offset %d; want %q, events/1, 3", at.Step, at.Epoch.Partition, at.Offset, tt.step)
				}
				var panicked *arroyo.PanicError
				if got := errors.As(err, &panicked); got != tt.panics {
					t.Errorf("PanicError: %v, want %v", got, tt.panics)
				} else if got && !strings.Contains(string(panicked.Stack), "failure_test.go") {
					t.Errorf("the stack does not show where it panicked:\n%s", panicked.Stack)
				}
				if got := broker.Committed(group, topic)[1]; got != tt.settled {
					t.Errorf("committed %d of the failing partition, want %d", got, tt.settled)
				}
				if n := broker.Members(group); n != 0 {
					t.Errorf("the group has %d members, want 0", n)
				}
			})
		})
	}
}

// ownStep is a strategy as users write them, without any care for failures.
type ownStep struct {
	arroyo.Forward[*kgo.Record]
	bad    func(arroyo.Message[*kgo.Record]) bool
	broken error
}

func (s ownStep) Submit(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
	for _, m := range msgs {
		if s.bad(m) {
			panic(s.broken)
		}
	}
	return s.Next.Submit(ctx, msgs)
}

// An error of Flush or Close ends the run too.
func TestFailureOfFlushAndClose(t *testing.T) {
	for _, in := range []string{"flush", "close"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				broken := errors.New("broken " + in)
				m := startMember(t, broker, endFails{arroyo.ForwardTo(strategies.Noop[*kgo.Record]()), in, broken}, nil)
				produce(broker, 3)
				broker.WaitCommitted(group, topic, 3)
				if err := m.stop(); !errors.Is(err, broken) {
					t.Errorf("Run: %v, want %v", err, broken)
				}
			})
		})
	}
}

type endFails struct {
	arroyo.Forward[*kgo.Record]
	in  string
	err error
}

func (s endFails) Flush(ctx context.Context) error {
	if s.in == "flush" {
		return s.err
	}
	return s.Forward.Flush(ctx)
}

func (s endFails) Close(ctx context.Context) error {
	if s.in == "close" {
		return s.err
	}
	return s.Forward.Close(ctx)
}

// A message that is returned while nothing is drained would be read by nobody.
func TestReturnOutsideOfADrainEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		m := startMember(t, broker, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if m.Payload.Offset == 2 {
				m.Return()
			}
			return nil
		}), nil)
		produce(broker, 5)
		time.Sleep(time.Second)
		if err := m.stop(); !errors.Is(err, arroyo.ErrReturned) || !strings.Contains(err.Error(), "offset 2") {
			t.Errorf("Run: %v, want ErrReturned at offset 2", err)
		}
		if got := broker.Committed(group, topic)[0]; got != 2 {
			t.Errorf("committed %d, want 2: the returned record was not done", got)
		}
	})
}

// logLines counts log records by message.
type logLines struct {
	slog.Handler
	mu    sync.Mutex
	lines map[string]int
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			line += ": " + a.Value.String()
		}
		return true
	})
	l.lines[line]++
	return nil
}

func (l *logLines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, times := range l.lines {
		if strings.Contains(line, part) {
			n += times
		}
	}
	return n
}

// Broker down at start: Run goes on trying, logs once, works when it is up,
// and ends promptly.
func TestBrokerDownAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		broker.Down()
		log := &logLines{lines: make(map[string]int)}
		var ledger ledger
		m := startMember(t, broker, ledger.by("member"), nil, arroyo.Logger(slog.New(log)))
		time.Sleep(10 * time.Minute)
		if n := log.count("cannot be reached"); n != 1 {
			t.Errorf("%d log lines about the broker in ten minutes, want 1: %v", n, log.lines)
		}
		broker.Up()
		broker.WaitCommitted(group, topic, 10)
		broker.Down()
		time.Sleep(10 * time.Minute)
		broker.Up()
		time.Sleep(time.Minute)
		if n := log.count("cannot be reached"); n < 2 || n > 4 {
			t.Errorf("%d log lines about the broker after it was down twice: %v", n, log.lines)
		}
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)

		broker.Down()
		never := startMember(t, broker, ledger.by("never"), nil)
		time.Sleep(time.Minute)
		began := time.Now()
		never.shutDown(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run took %v to end, want at once", took)
		}
	})
}

func TestUnknownTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("others", 1))
		m := startMember(t, broker, strategies.Noop[*kgo.Record](), nil)
		time.Sleep(30 * time.Second)
		err := m.stop()
		var unknown *arroyo.UnknownTopicError
		if !errors.As(err, &unknown) || unknown.Topic != topic {
			t.Errorf("Run: %v, want an UnknownTopicError", err)
		}
	})
}

// A topic that is made a moment after the consumer started is no failure.
func TestTopicMadeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		var ledger ledger
		m := startMember(t, broker, ledger.by("member"), nil)
		time.Sleep(3 * time.Second)
		broker.CreateTopic(topic, 2)
		produce(broker, 10)
		broker.WaitCommitted(group, topic, 10)
		m.shutDown(t)
	})
}

func TestNotAuthorised(t *testing.T) {
	for name, key := range map[string]kmsg.Key{"group": kmsg.JoinGroup, "topic": kmsg.Metadata} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				refusal := kerr.GroupAuthorizationFailed
				if key == kmsg.Metadata {
					refusal = kerr.TopicAuthorizationFailed
				}
				broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: refusal, Count: -1})
				m := startMember(t, broker, strategies.Noop[*kgo.Record](), nil)
				time.Sleep(time.Minute)
				what := map[string]string{"group": group, "topic": topic}[name]
				if err := m.stop(); !errors.Is(err, refusal) || !strings.Contains(err.Error(), what) {
					t.Errorf("Run: %v, want %v of %s", err, refusal, what)
				}
			})
		})
	}
}

func TestWrongCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2), memkafka.SASL("ann", "secret"))
		run := func(password string) error {
			c := newConsumer(t, broker, saslPlain("ann", password))
			processor, err := arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), quiet)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return processor.Run(ctx)
		}
		err := run("guess")
		var refused *arroyo.AuthenticationError
		if !errors.As(err, &refused) || !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("Run: %v, want an AuthenticationError", err)
		}
		if strings.Contains(err.Error(), "guess") {
			t.Errorf("the error tells the password: %v", err)
		}
		if err := run("secret"); err != nil {
			t.Errorf("Run with the right password: %v", err)
		}
	})
}

// An offset outside of the log ends the run: nothing is skipped silently.
func TestOffsetOutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 10)
		c := newConsumer(t, broker)
		epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
		expect[*arroyo.Fetched](t, c)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 1000}); err != nil {
			t.Fatal(err)
		}
		c.Close()

		m := startMember(t, broker, strategies.Noop[*kgo.Record](), nil)
		time.Sleep(time.Minute)
		err := m.stop()
		var out *arroyo.OffsetOutOfRangeError
		if !errors.As(err, &out) || out.Partition.Number != 0 {
			t.Fatalf("Run: %v, want an OffsetOutOfRangeError", err)
		}
		if got := broker.Committed(group, topic)[0]; got != 1000 {
			t.Errorf("committed %d, want it as it was", got)
		}
	})
}

// A partition with a lasting error costs no spinning: in a bubble a loop
// without a pause would never let time pass.
func TestLastingErrorIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := newConsumer(t, broker)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		fault := broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: -1})
		failed := expect[*arroyo.Failed](t, c)
		if !failed.Fatal || !errors.Is(failed.Err, kerr.TopicAuthorizationFailed) {
			t.Errorf("Failed: %+v, want a fatal TOPIC_AUTHORIZATION_FAILED", failed)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if ev, err := c.Poll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %T, %v; want one event for a lasting error", ev, err)
		}
		if n := fault.Hits(); n > 200 {
			t.Errorf("%d fetches in ten minutes, want one or two each ten seconds", n)
		}
		fault.Remove()
		produce(broker, 1)
		if f := expect[*arroyo.Fetched](t, c); len(f.Records) != 1 {
			t.Errorf("got %v, want the record", f)
		}
	})
}

// recordsRead counts what the client has read from brokers.
type recordsRead struct{ n atomic.Int64 }

func (h *recordsRead) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	h.n.Add(int64(m.NumRecords))
}

// What is taken from the broker stays within bounds when the downstream does
// not keep up; membership is kept and flow resumes.
func TestInFlightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		for range 500 {
			produce(broker, 10) // small batches
		}
		hold := make(chan struct{})
		var ledger ledger
		pipeline := strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			<-hold
			ledger.add("member", m.Payload)
			return nil
		})
		var read recordsRead
		m := startMember(t, broker, pipeline, []kgo.Opt{kgo.FetchMaxPartitionBytes(2000), kgo.WithHooks(&read)}, arroyo.MaxInFlight(100))
		time.Sleep(10 * time.Minute)
		if n := read.n.Load(); n < 100 || n > 500 {
			t.Errorf("%d of 5000 records were read with a bound of 100, want a few polls' worth", n)
		}
		if n := broker.Members(group); n != 1 {
			t.Errorf("the group has %d members while the downstream is stuck, want 1", n)
		}
		close(hold)
		broker.WaitCommitted(group, topic, 5000)
		m.shutDown(t)
		ledger.expectAll(t, broker, 0)
		ledger.expectOrder(t)
	})
}

// A batch that is larger than the in-flight bound is flushed, not stuck.
func TestBatchLargerThanTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var mu sync.Mutex
		var sizes []int
		pipeline := strategies.ForEachBatch(10_000, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
			mu.Lock()
			defer mu.Unlock()
			sizes = append(sizes, len(rows))
			return nil
		})
		m := startMember(t, broker, pipeline, nil, arroyo.MaxInFlight(500))
		for range 4 {
			produce(broker, 500)
		}
		began := time.Now()
		broker.WaitCommitted(group, topic, 1501) // what is below the bound may wait for more
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		m.shutDown(t)
		expectCommitted(t, broker)
		if len(sizes) == 0 || cmp.Equal(sizes, []int{2000}) {
			t.Errorf("batches of %v, want several of at most the bound and a poll", sizes)
		}
	})
}

// That a broker cannot be reached is told, once and not as fatal, and records
// come when it is back.
func TestTransportErrorIsInformational(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := newConsumer(t, broker, opts...)
		defer c.Close()
		expect[*arroyo.Assigned](t, c)
		produce(broker, 2)
		read(t, c, 2)
		for round := range 2 {
			broker.Down()
			told := 0
			var unreachable *arroyo.TransportError
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			for {
				ev, err := c.Poll(ctx)
				if err != nil {
					break
				}
				if f, ok := ev.(*arroyo.Failed); ok && errors.As(f.Err, &unreachable) {
					told++
					if f.Fatal {
						t.Errorf("round %d: %v is fatal", round, f.Err)
					}
				}
			}
			cancel()
			if told != 1 {
				t.Errorf("round %d: told %d times, want once", round, told)
			}
			broker.Up()
			produce(broker, 2)
			records := 0
			poll(t, c, func(ev arroyo.Event) bool {
				if f, ok := ev.(*arroyo.Fetched); ok {
					records += len(f.Records)
				}
				return records >= 2
			})
		}
	})
}
