package arroyo_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// An epoch that ends while its letter fails, or is not answered, takes the
// trouble with it: Status has no error that nothing has any more.
func TestTroubleGoesWithItsEpoch(t *testing.T) {
	for name, fault := range map[string]func(*memkafka.Broker) *memkafka.Fault{
		"fails": func(b *memkafka.Broker) *memkafka.Fault {
			return b.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(dead))
		},
		"not answered": func(b *memkafka.Broker) *memkafka.Fault { return b.Swallow(kmsg.Produce, memkafka.OnTopic(dead)) },
	} {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := deadBroker(t, 1)
				fault := fault(broker)
				var again atomic.Bool
				m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
					return strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error {
						if again.Swap(true) {
							return nil
						}
						return arroyo.Invalid(errors.New("poison"))
					})
				}, append(opts, kgo.ClientID("m")), toDead)
				produce(broker, 1)
				broker.WaitStable(group, 1)
				time.Sleep(40 * time.Second)
				if s := m.Status().DeadLetters; s.Pending != 1 || s.Err == nil {
					t.Errorf("status: %+v", s)
				}
				broker.Kick(group, "m")
				broker.WaitCommitted(group, topic, 1)
				time.Sleep(20 * time.Second)
				if s := m.Status().DeadLetters; s.Pending != 0 || s.Err != nil || s.Delivered != 0 {
					t.Errorf("status in the next epoch: %+v", s)
				}
				fault.Heal()
				m.shutDown(t)
			})
		})
	}
}

// A letter that was sent again, and whose epoch ends before anybody answers, is
// not waited for: the next one that has to be sent again is.
func TestLettersDoNotWaitForThoseOfOldEpochs(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		attempts := 0
		m := start(t, broker, poisoned, append(opts, kgo.ClientID("m")), arroyo.DeadLetter(arroyo.DeadLetterPolicy{
			Topic:   dead,
			Timeout: time.Hour,
			Producer: producerFunc(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
				switch attempts++; attempts {
				case 1, 3: // the first in each epoch
					promise(r, errors.New("failed"))
				case 2: // is not answered
				default:
					promise(r, nil)
				}
			}),
		}))
		produce(broker, 1)
		broker.WaitStable(group, 1)
		time.Sleep(5 * time.Second)
		broker.Kick(group, "m")
		broker.WaitCommitted(group, topic, 1)
		m.shutDown(t)
		if attempts != 4 {
			t.Errorf("%d attempts, want 4", attempts)
		}
	})
}

// A session that is lost while a letter is under way: its next owner, or the
// same one, finds the message again; the letter comes twice, the counters are
// right, and the drain at the end is clean and quick.
func TestI7LetterAcrossALostSession(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 3)
		delay := broker.Delay(kmsg.Produce, 8*time.Second, memkafka.OnTopic(dead), memkafka.Times(1))
		var ledger ledger
		m := start(t, broker, invalidIf(&ledger, is("1")), append(opts, kgo.ClientID("m")), toDead)
		broker.WaitStable(group, 1)
		time.Sleep(2 * time.Second)
		broker.Kick(group, "m")
		broker.WaitCommitted(group, topic, 3)
		delay.Heal()
		if n := len(broker.Records(dead)); n != 2 {
			t.Errorf("%d letters, want the same twice", n)
		}
		if s := m.Status(); s.DeadLetters.Pending != 0 || s.InFlight != 0 {
			t.Errorf("status: %+v", s)
		}
		began := time.Now()
		m.shutDown(t)
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the drain took %v", took)
		}
	})
}

// I8: the end of the run, and a revoke, wait for a letter, and not longer.
func TestI8DrainEndsWithItsLastLetter(t *testing.T) {
	for _, limited := range []int{0, 5} {
		inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
			broker := memkafka.New(t, memkafka.Topic(topic, 1))
			var acked time.Time
			m := start(t, broker, poisoned, opts, arroyo.CommitInterval(time.Hour), arroyo.DeadLetter(arroyo.DeadLetterPolicy{
				Topic:          dead,
				MaxConsecutive: limited,
				Producer: producerFunc(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
					time.AfterFunc(1234*time.Millisecond, func() {
						acked = time.Now()
						promise(r, nil)
					})
				}),
			}))
			broker.WaitStable(group, 1)
			time.Sleep(time.Second)
			produce(broker, 1)
			time.Sleep(500 * time.Millisecond)
			m.shutDown(t)
			if took := time.Since(acked); took > 100*time.Millisecond {
				t.Errorf("Run ended %v after the ack", took)
			}
			if c := broker.Committed(group, topic)[0]; c != 1 {
				t.Errorf("committed %d", c)
			}
		})
	}
}

// I7: what is rejected only in the flush of a drain is dead-lettered before its
// offset is committed, too; with limits and without.
func TestI7RejectedDuringADrain(t *testing.T) {
	for _, limit := range []int{0, 100} {
		for _, end := range []string{"revoke", "shutdown"} {
			t.Run(end, func(t *testing.T) {
				inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
					broker := deadBroker(t, 2)
					produce(broker, 20)
					delay := broker.Delay(kmsg.Produce, 3*time.Second, memkafka.OnTopic(dead))
					m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
						return strategies.ForEachBatch(1000, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
							for _, row := range rows {
								if row.Payload.Offset%2 == 1 {
									row.Reject(errors.New("poison"))
								}
							}
							return nil
						})
					}, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, MaxConsecutive: limit}))
					broker.WaitStable(group, 1)
					time.Sleep(5 * time.Second)
					if end == "revoke" {
						one, two := broker.Join(group, topic, opts...), broker.Join(group, topic, opts...)
						broker.WaitStable(group, 3)
						one.Leave()
						two.Leave()
						delay.Heal()
						broker.WaitStable(group, 1)
					}
					m.shutDown(t)
					if diff := cmp.Diff(map[int32]int64{0: 10, 1: 10}, broker.Committed(group, topic)); diff != "" {
						t.Errorf("committed (-want +got):\n%s", diff)
					}
					for p := range int32(2) {
						if diff := cmp.Diff([]int64{1, 3, 5, 7, 9}, origins(t, broker, p)); diff != "" {
							t.Errorf("dead letters of partition %d (-want +got):\n%s", p, diff)
						}
					}
				})
			})
		}
	}
}

// Under DeadLetterStop a failure in the middle of a drain ends the run with the
// cause, and at once; what was done before it is committed.
func TestI7StopDuringADrain(t *testing.T) {
	for _, end := range []string{"revoke", "shutdown"} {
		t.Run(end, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				failed := errors.New("failed")
				var fail atomic.Bool
				var at atomic.Pointer[time.Time]
				m := start(t, broker, poisoned, opts, lettersBy(func(_ context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
					time.AfterFunc(4*time.Second, func() {
						if !fail.Load() {
							promise(r, nil)
							return
						}
						now := time.Now()
						at.Store(&now)
						promise(r, failed)
					})
				}, arroyo.DeadLetterStop))
				produce(broker, 2)
				broker.WaitStable(group, 1)
				time.Sleep(5 * time.Second)
				fail.Store(true)
				produce(broker, 2)
				time.Sleep(time.Second)
				if end == "revoke" {
					rival := broker.Join(group, topic, opts...)
					broker.WaitStable(group, 1) // the rival, when the run has ended
					rival.Leave()
				}
				err := m.stop()
				var letter *arroyo.DeadLetterError
				if !errors.As(err, &letter) || letter.Offset != 1 || !errors.Is(err, failed) || errors.Is(err, arroyo.ErrAbandoned) {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(*at.Load()); took > 15*time.Second {
					t.Errorf("Run ended %v after the failure", took)
				}
				if diff := cmp.Diff(map[int32]int64{0: 1, 1: 1}, broker.Committed(group, topic)); diff != "" {
					t.Errorf("committed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Limits count anew when a partition comes back, and only then: one that stays
// while others go is counted on.
func TestI7LimitsCountAnewInEachEpoch(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 2)
		m := start(t, broker, poisoned, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, MaxConsecutive: 4}))
		broker.WaitStable(group, 1)
		produce(broker, 6)
		broker.WaitCommitted(group, topic, 6)
		before := m.Status().Partitions
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		rival.Leave()
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		after := m.Status().Partitions
		moved := -1
		for i := range after {
			if after[i].Epoch != before[i].Epoch {
				moved = i
			}
		}
		if moved < 0 {
			t.Fatalf("no partition moved: %v", after)
		}
		for range 4 { // as many as at first
			broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: int32(moved)})
		}
		broker.WaitCommitted(group, topic, 10)
		for i := range after {
			if after[i].Epoch == before[i].Epoch {
				moved = i // it stayed, and has one left
				broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: int32(i)})
				broker.WaitCommitted(group, topic, 11)
			}
		}
		broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: int32(moved)})
		time.Sleep(5 * time.Second)
		want := broker.End(topic)[int32(moved)] - 1
		var limit *arroyo.DeadLetterLimitError
		if err := m.stop(); !errors.As(err, &limit) || int(limit.Partition.Number) != moved || limit.Offset != want || limit.Seen != 5 {
			t.Errorf("Run: %v, want a DeadLetterLimitError at the fifth message of the epoch, offset %d", err, want)
		}
		if c := broker.Committed(group, topic)[int32(moved)]; c != want {
			t.Errorf("committed %d, want %d", c, want)
		}
	})
}

// Markers of transactions, aborted records and gaps are no messages: they
// neither count nor end a row of rejections.
func TestI7LimitsAndTransactions(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		broker.ProduceTransaction(topic, "a", "b") // 0, 1, marker 2
		broker.ProduceAborted(topic, "x", "y")     // 3, 4, marker 5
		broker.Skip(topic, 0, 3)                   // 6 to 8
		broker.ProduceTransaction(topic, "c", "d") // 9, 10, marker 11
		broker.ProduceTransaction(topic, "e")      // 12, marker 13
		m := start(t, broker, poisoned, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, MaxConsecutive: 4}))
		broker.WaitStable(group, 1)
		time.Sleep(5 * time.Second)
		var limit *arroyo.DeadLetterLimitError
		if err := m.stop(); !errors.As(err, &limit) || limit.Offset != 12 || limit.Seen != 5 || limit.Consecutive != 5 {
			t.Errorf("Run: %v, want a DeadLetterLimitError at offset 12", err)
		}
		if c := broker.Committed(group, topic)[0]; c != 12 {
			t.Errorf("committed %d, want 12", c)
		}
		if diff := cmp.Diff([]int64{0, 1, 9, 10}, origins(t, broker, 0)); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// Rejections that wait for the verdicts of messages before them, to be judged
// in order, are pending too.
func TestPendingLettersThatAreNotJudged(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 8)
		free := make(chan struct{})
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(8, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				for _, row := range rows[3:] {
					row.Reject(errors.New("poison"))
				}
				<-free
				return nil
			})
		}, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, MaxConsecutive: 5}))
		broker.WaitStable(group, 1)
		time.Sleep(5 * time.Second)
		if s := m.Status().DeadLetters; s.Pending != 5 || s.Delivered != 0 || len(broker.Records(dead)) != 0 {
			t.Errorf("status: %+v, want 5 that are pending", s)
		}
		close(free)
		broker.WaitCommitted(group, topic, 8)
		if s := m.Status().DeadLetters; s.Pending != 0 || s.Delivered != 5 {
			t.Errorf("status: %+v", s)
		}
		m.shutDown(t)
	})
}

// Drop is neither a rejection nor a failure: it acks, and ends a row of
// rejections.
func TestDropAmongRejections(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 30)
		var ledger ledger
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.RunTask(func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
				switch m.Payload.Offset % 3 {
				case 0:
					return nil, arroyo.Invalid(errors.New("poison"))
				case 1:
					return nil, arroyo.Drop
				}
				return m.Payload, nil
			}, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
				ledger.add("m", m.Payload)
				return arroyo.Drop
			}))
		}, opts, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, MaxConsecutive: 1, MaxRatio: 0.4}))
		broker.WaitCommitted(group, topic, 30)
		m.shutDown(t)
		if diff := cmp.Diff([]int64{0, 3, 6, 9, 12, 15, 18, 21, 24, 27}, origins(t, broker, 0)); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
		if n := len(ledger.all()); n != 10 {
			t.Errorf("%d messages came through, want 10", n)
		}
	})
}

// Reasons that are odd: too long, of an Error method that panics, none.
func TestOddReasons(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 5)
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(5, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				rows[0].Reject(errors.New("x" + strings.Repeat("é", 5000)))
				rows[1].Reject((*brokenError)(nil))
				rows[2].Reject(nil)
				rows[3].Reject(arroyo.Invalid(nil))
				rows[4].Reject(arroyo.Invalid((*brokenError)(nil)))
				return nil
			})
		}, opts, toDead)
		broker.WaitCommitted(group, topic, 5)
		m.shutDown(t)
		for i, r := range broker.Records(dead) {
			_, origin, err := arroyo.ReadDeadLetter(r)
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"x" + strings.Repeat("é", 2047), "<nil>", "", "invalid message: <nil>", "<nil>"}[i]
			if origin.Reason != want {
				t.Errorf("reason %d is %.40q (%d bytes), want %.40q", i, origin.Reason, len(origin.Reason), want)
			}
		}
	})
}

// brokenError cannot say what it is.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// Client options under which nobody would know whether a letter was written.
func TestDeadLetterRefusesClientsThatDoNotAck(t *testing.T) {
	for option, opts := range map[string][]kgo.Opt{
		"kgo.RequiredAcks":   {kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		"kgo.ManualFlushing": {kgo.ManualFlushing()},
	} {
		c, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(append(opts, kgo.SeedBrokers("localhost:1"))...))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), toDead)
		var bad *arroyo.OptionError
		if !errors.As(err, &bad) || bad.Option != "DeadLetter" || !strings.Contains(err.Error(), option) {
			t.Errorf("%s: %v", option, err)
		}
		other := producerFunc(func(context.Context, *kgo.Record, func(*kgo.Record, error)) {})
		if _, err := arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), lettersBy(other, arroyo.DeadLetterBlock)); err != nil {
			t.Errorf("%s with a producer of one's own: %v", option, err)
		}
	}
}
