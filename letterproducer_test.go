package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// producerFunc is a Producer of dead letters.
type producerFunc func(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))

func (f producerFunc) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	f(ctx, r, promise)
}

// lettersBy is the option DeadLetter with a producer of one's own.
func lettersBy(p producerFunc, how arroyo.DeadLetterFailure) arroyo.ProcessorOption {
	return arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, Producer: p, OnFailure: how})
}

// poisoned rejects everything.
func poisoned() arroyo.Strategy[*kgo.Record] {
	return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
		return arroyo.Invalid(errors.New("poison"))
	}, strategies.Name("insert"))
}

// However a producer calls its promises, each letter counts once, and the
// offsets are committed.
func TestLettersOfOddProducers(t *testing.T) {
	failed := errors.New("failed")
	for _, tt := range []struct {
		name     string
		produce  func(attempt int, promise func(error))
		attempts int // at one letter
	}{
		{"at once", func(_ int, promise func(error)) { promise(nil) }, 1},
		{"late", func(_ int, promise func(error)) { time.AfterFunc(5*time.Second, func() { promise(nil) }) }, 1},
		{"twice", func(_ int, promise func(error)) {
			promise(nil)
			promise(nil)
			time.AfterFunc(time.Second, func() { promise(failed) })
		}, 1},
		{"blocks", func(_ int, promise func(error)) {
			time.Sleep(time.Second)
			promise(nil)
		}, 1},
		{"fails at once, and tells again while the next attempt is under way", func(n int, promise func(error)) {
			if n == 1 {
				promise(failed)
				time.AfterFunc(500*time.Millisecond, func() { promise(failed) })
				time.AfterFunc(600*time.Millisecond, func() { promise(nil) })
				return
			}
			time.AfterFunc(10*time.Second, func() { promise(nil) })
		}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				const n = 6
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				produce(broker, n)
				var mu sync.Mutex
				attempts := make(map[string]int)
				m := start(t, broker, poisoned, opts, lettersBy(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
					mu.Lock()
					attempts[string(r.Value)]++
					attempt := attempts[string(r.Value)]
					mu.Unlock()
					tt.produce(attempt, func(err error) { promise(r, err) })
				}, arroyo.DeadLetterBlock))
				broker.WaitCommitted(group, topic, n)
				if s := m.Status().DeadLetters; s.Delivered != n || s.Pending != 0 || s.Err != nil {
					t.Errorf("status: %+v", s)
				}
				m.shutDown(t)
				time.Sleep(time.Minute) // what it tells after the end
				for value, got := range attempts {
					if got != tt.attempts {
						t.Errorf("%d attempts at the letter of %q, want %d", got, value, tt.attempts)
					}
				}
				if len(attempts) != n {
					t.Errorf("letters: %v", attempts)
				}
			})
		})
	}
}

// A producer that never tells: the log and Status say so, the end of the run is
// bounded and says why, and what comes after it does no harm.
func TestLettersNobodyTellsOf(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 3)
		var late []func()
		m := start(t, broker, poisoned, opts, arroyo.StallAfter(30*time.Second), lettersBy(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
			late = append(late, func() { promise(r, nil) })
		}, arroyo.DeadLetterBlock))
		time.Sleep(time.Minute)
		if s := m.Status().DeadLetters; s.Pending != 3 || !errors.Is(s.Err, arroyo.ErrDeadLetterTimeout) {
			t.Errorf("status: %+v", s)
		}
		if p := m.Status().Partitions[0]; p.Step != "dead letter" {
			t.Errorf("the oldest record is in step %q", p.Step)
		}
		if err := m.Health(); err == nil || !strings.Contains(err.Error(), "events/0 is stalled at offset 0 in step dead letter") {
			t.Errorf("Health: %v", err)
		}
		began := time.Now()
		err := m.stop()
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		var failed *arroyo.DeadLetterError
		if !errors.Is(err, arroyo.ErrAbandoned) || !errors.As(err, &failed) || !errors.Is(err, arroyo.ErrDeadLetterTimeout) {
			t.Errorf("Run: %v", err)
		}
		for _, tell := range late {
			tell()
		}
		if c := broker.Committed(group, topic)[0]; c > 0 {
			t.Errorf("committed %d", c)
		}
		if s := m.Status().DeadLetters; s.Delivered != 0 || s.Pending != 3 {
			t.Errorf("status after the end: %+v", s)
		}
	})
}

// A letter that nobody has acked when the last drain is past its deadline is in
// Run's error, also when its own time is not over yet.
func TestUnackedLettersAreInTheError(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 1)
		m := start(t, broker, poisoned, opts, arroyo.DrainTimeout(5*time.Second),
			lettersBy(func(context.Context, *kgo.Record, func(*kgo.Record, error)) {}, arroyo.DeadLetterBlock))
		broker.WaitStable(group, 1)
		time.Sleep(3 * time.Second)
		if err := m.stop(); !errors.Is(err, arroyo.ErrAbandoned) || !errors.Is(err, arroyo.ErrDeadLetterTimeout) {
			t.Errorf("Run: %v", err)
		}
	})
}

// A producer that blocks and ignores its context keeps Run no longer than any
// other user code, and Run's error names it.
func TestLettersOfAStuckProducer(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 3)
		free := make(chan struct{})
		defer close(free)
		m := start(t, broker, poisoned, opts, lettersBy(func(context.Context, *kgo.Record, func(*kgo.Record, error)) { <-free }, arroyo.DeadLetterBlock))
		broker.WaitStable(group, 1)
		time.Sleep(2 * time.Second)
		began := time.Now()
		err := m.stop()
		if took := time.Since(began); took > 26*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		var left *arroyo.AbandonedError
		if !errors.As(err, &left) || left.Step != "DeadLetterPolicy.Producer" {
			t.Errorf("Run: %v", err)
		}
	})
}

// A producer that panics, or calls Goexit, ends the run and not the program.
func TestLettersOfAPanickingProducer(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		for name, produce1 := range map[string]func(){
			"panic":  func() { panic("no connection") },
			"Goexit": runtime.Goexit,
		} {
			broker := memkafka.New(t, memkafka.Topic(topic, 1))
			produce(broker, 3)
			processor, err := arroyo.NewProcessor(newConsumer(t, broker, opts...), poisoned(), quiet,
				lettersBy(func(context.Context, *kgo.Record, func(*kgo.Record, error)) { produce1() }, arroyo.DeadLetterBlock))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = processor.Run(t.Context())
			var failed *arroyo.DeadLetterError
			if !errors.As(err, &failed) || failed.Offset != 0 || errors.Is(err, arroyo.ErrAbandoned) {
				t.Errorf("%s: Run: %v", name, err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: Run ended after %v", name, took)
			}
			broker.Close()
		}
	})
}

// A letter that cannot be written does not hold those of other partitions, nor
// later ones; the log tells of it once, and it is not tried all the time.
func TestOneLetterDoesNotHoldTheOthers(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		var (
			mu       sync.Mutex
			healed   bool
			attempts int
		)
		log := new(safeBuffer)
		m := start(t, broker, poisoned, opts, arroyo.Logger(slog.New(slog.NewTextHandler(log, nil))),
			lettersBy(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
				mu.Lock()
				defer mu.Unlock()
				if string(r.Value) == "0" && !healed {
					attempts++
					promise(r, kerr.MessageTooLarge)
					return
				}
				time.AfterFunc(10*time.Millisecond, func() { promise(r, nil) })
			}, arroyo.DeadLetterBlock))
		broker.WaitStable(group, 1)
		for i := range 600 { // five minutes of them
			broker.Produce(topic, fmt.Sprint(2*i), fmt.Sprint(2*i+1))
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if c := broker.Committed(group, topic); c[0] > 0 || c[1] != 600 {
			t.Errorf("committed %v, want nothing of partition 0 and all of partition 1", c)
		}
		if s := m.Status().DeadLetters; s.Delivered != 1199 || s.Pending != 1 || !errors.Is(s.Err, kerr.MessageTooLarge) {
			t.Errorf("status: %+v", s)
		}
		if n := strings.Count(log.String(), "dead letters"); n != 1 {
			t.Errorf("the log tells of it %d times:\n%s", n, log)
		}
		mu.Lock()
		if attempts < 20 || attempts > 40 {
			t.Errorf("%d attempts in five minutes", attempts)
		}
		healed = true
		mu.Unlock()
		broker.WaitCommitted(group, topic, 1200)
		if n := strings.Count(log.String(), "dead letters are delivered again"); n != 1 {
			t.Errorf("the log tells of the end %d times:\n%s", n, log)
		}
		m.shutDown(t)
	})
}

// I7: letters to another cluster, with a client of its own, while that is down.
func TestI7LettersToAnotherCluster(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		far := memkafka.New(t, memkafka.Topic(dead, 1))
		client, err := kgo.NewClient(far.ClientOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		far.Down()
		produce(broker, 20)
		m := start(t, broker, poisoned, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, Producer: client}))
		broker.WaitStable(group, 1)
		time.Sleep(2 * time.Minute)
		if s := m.Status(); s.DeadLetters.Pending != 20 || !errors.Is(s.DeadLetters.Err, arroyo.ErrDeadLetterTimeout) || s.CommitErr != nil {
			t.Errorf("status: %+v", s.DeadLetters)
		}
		if c := broker.Committed(group, topic); c[0] > 0 || c[1] > 0 {
			t.Errorf("committed %v", c)
		}
		rival := broker.Join(group, topic, opts...) // is not kept waiting
		joined := time.Now()
		broker.WaitStable(group, 2)
		if took := time.Since(joined); took > 35*time.Second {
			t.Errorf("the rival waited %v", took)
		}
		rival.Leave()
		broker.WaitStable(group, 1)
		far.Up()
		broker.WaitCommitted(group, topic, 20)
		m.shutDown(t)
		seen := make(map[string]bool)
		for _, r := range far.Records(dead) {
			seen[string(r.Value)] = true
		}
		if len(seen) != 20 {
			t.Errorf("letters of %d records, want 20", len(seen))
		}
	})
}

// Letters that are too large together, in one batch, are delivered in smaller
// ones.
func TestLettersThatAreTooLargeTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, n)
		p := &batchProducer{most: 10}
		m := startMember(t, broker, poisoned(), nil, lettersBy(p.produce, arroyo.DeadLetterBlock))
		began := time.Now()
		broker.WaitCommitted(group, topic, n)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		m.shutDown(t)
	})
}

// batchProducer sends every 10 ms what it was given, as one batch, which fails
// if it is too large.
type batchProducer struct {
	most  int
	mu    sync.Mutex
	batch []func(error)
}

func (p *batchProducer) produce(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = append(p.batch, func(err error) { promise(r, err) })
	if len(p.batch) == 1 {
		time.AfterFunc(10*time.Millisecond, func() {
			p.mu.Lock()
			batch := p.batch
			p.batch = nil
			p.mu.Unlock()
			var err error
			if len(batch) > p.most {
				err = kerr.MessageTooLarge
			}
			for _, tell := range batch {
				tell(err)
			}
		})
	}
}

// A slow producer is none that fails; one that passes a letter over is.
func TestSlowLettersAreNotLate(t *testing.T) {
	for _, stuck := range []bool{false, true} {
		t.Run(fmt.Sprintf("one is stuck=%v", stuck), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 50
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				acks := make(chan func(), 1000)
				go func() { // one a second, in order
					for ack := range acks {
						time.Sleep(time.Second)
						ack()
					}
				}()
				defer close(acks)
				m := startMember(t, broker, poisoned(), nil, arroyo.DeadLetter(arroyo.DeadLetterPolicy{
					Topic:     dead,
					OnFailure: arroyo.DeadLetterStop,
					Timeout:   10 * time.Second,
					Producer: producerFunc(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
						if !stuck || string(r.Value) != "3" {
							acks <- func() { promise(r, nil) }
						}
					}),
				}))
				if stuck {
					for i := range n {
						broker.Produce(topic, fmt.Sprint(i))
						time.Sleep(time.Second)
					}
					var failed *arroyo.DeadLetterError
					if s := m.Status(); s.State != arroyo.StateEnded || !errors.As(s.Err, &failed) || failed.Offset != 3 || !errors.Is(s.Err, arroyo.ErrDeadLetterTimeout) {
						t.Errorf("the run is %s with %v, want a DeadLetterError of offset 3", s.State, s.Err)
					}
					_ = m.stop()
					return
				}
				produce(broker, n)
				broker.WaitCommitted(group, topic, n)
				m.shutDown(t)
			})
		})
	}
}

// A Timeout of next to nothing does not make the run loop spin, in a bubble for
// ever.
func TestLettersWithNextToNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := deadBroker(t, 1)
		produce(broker, 3)
		m := startMember(t, broker, poisoned(), nil, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, Timeout: 1}))
		broker.WaitCommitted(group, topic, 3)
		m.shutDown(t)
	})
}
