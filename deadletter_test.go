package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

const dead = "events.dead"

var toDead = arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead})

// deadBroker has the topic and the dead-letter topic, of one partition.
func deadBroker(t *testing.T, partitions int) *memkafka.Broker {
	t.Helper()
	return memkafka.New(t, memkafka.Topic(topic, partitions), memkafka.Topic(dead, 1))
}

// invalidIf rejects the messages whose value is one of these, and writes the
// others into the ledger.
func invalidIf(l *ledger, bad func(value string) bool) pipelineFunc {
	return func() arroyo.Strategy[*kgo.Record] {
		return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if bad(string(m.Payload.Value)) {
				return arroyo.Invalid(errors.New("poison"))
			}
			l.add("m", m.Payload)
			return nil
		}, strategies.Name("insert"))
	}
}

func is(values ...string) func(string) bool {
	return func(v string) bool { return slices.Contains(values, v) }
}

// origins returns the offsets that the letters of a partition came from.
func origins(t *testing.T, broker *memkafka.Broker, partition int32) []int64 {
	t.Helper()
	var offsets []int64
	for _, r := range broker.Records(dead) {
		_, origin, err := arroyo.ReadDeadLetter(r)
		if err != nil {
			t.Fatal(err)
		}
		if origin.Partition == (arroyo.Partition{Topic: topic, Number: partition}) {
			offsets = append(offsets, origin.Offset)
		}
	}
	return offsets
}

// A dead letter is the record exactly as it came, with headers that tell where
// it came from and why.
func TestDeadLetterIsTheRecordAsItCame(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 3)
		in := []*kgo.Record{
			{Key: []byte("k"), Value: []byte("v")},
			{Key: nil, Value: []byte("v")},
			{Key: []byte("k"), Value: nil},
			{Key: []byte{}, Value: []byte{}},
			{Key: nil, Value: nil, Headers: []kgo.RecordHeader{
				{Key: "a", Value: []byte("1")}, {Key: "b", Value: nil}, {Key: "a", Value: []byte("2")}, {Key: "original_offset", Value: []byte("x")},
			}},
		}
		at := time.UnixMilli(946684800123)
		for _, r := range in {
			r.Topic, r.Partition, r.Timestamp = topic, 2, at
		}
		broker.ProduceRecords(in...)
		var ledger ledger
		m := start(t, broker, invalidIf(&ledger, func(string) bool { return true }), opts, toDead)
		broker.WaitCommitted(group, topic, int64(len(in)))
		out := broker.Records(dead)
		if len(out) != len(in) {
			t.Fatalf("%d dead letters, want %d", len(out), len(in))
		}
		for i, letter := range out {
			r, origin, err := arroyo.ReadDeadLetter(letter)
			if err != nil {
				t.Fatal(err)
			}
			want := &kgo.Record{Topic: topic, Key: in[i].Key, Value: in[i].Value, Headers: in[i].Headers, Timestamp: at}
			if r.Headers = append([]kgo.RecordHeader(nil), r.Headers...); len(r.Headers) == 0 {
				r.Headers = nil
			}
			if !r.Timestamp.Equal(at) {
				t.Errorf("the timestamp is %v", r.Timestamp)
			}
			r.Timestamp = at
			if diff := cmp.Diff(headersOf(want), headersOf(r)); diff != "" || !same(want.Key, r.Key) || !same(want.Value, r.Value) || r.Topic != topic || r.Partition != 2 {
				t.Errorf("record %d: %v, key %q and value %q of %q (-want +got headers):\n%s", i, r, r.Key, r.Value, r.Topic, diff)
			}
			if origin.Partition != (arroyo.Partition{Topic: topic, Number: 2}) || origin.Offset != int64(i) || origin.Group != group ||
				origin.Step != "insert" || origin.Reason != "poison" || time.Since(origin.Time) > time.Minute {
				t.Errorf("origin of record %d: %+v", i, origin)
			}
			// What tools for Sentry's Arroyo read.
			if got := header(letter, "original_partition"); got != "2" {
				t.Errorf("original_partition is %q", got)
			}
			if got := header(letter, "original_offset"); got != fmt.Sprint(i) {
				t.Errorf("original_offset is %q", got)
			}
		}
		if s := m.Status().DeadLetters; s.Delivered != int64(len(in)) || s.Pending != 0 || s.Err != nil {
			t.Errorf("status: %+v", s)
		}
		m.shutDown(t)
	})
}

func headersOf(r *kgo.Record) (hs []string) {
	for _, h := range r.Headers {
		hs = append(hs, fmt.Sprintf("%s=%q", h.Key, h.Value))
	}
	return hs
}

// header returns the last header of a name.
func header(r *kgo.Record, key string) (value string) {
	for _, h := range r.Headers {
		if h.Key == key {
			value = string(h.Value)
		}
	}
	return value
}

// same reports whether two values are the same on the wire.
func same(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }

// Wherever in a partition and in a pipeline a message is rejected, its record
// ends in the dead-letter topic, the others are processed, and everything is
// committed.
func TestI7InvalidInAnyStep(t *testing.T) {
	for name, build := range rejecting {
		for which, bad := range map[string]func(offset int64) bool{
			"the first":  func(o int64) bool { return o == 0 },
			"one inside": func(o int64) bool { return o == 31 },
			"the last":   func(o int64) bool { return o == 99 },
			"some":       func(o int64) bool { return o%7 == 3 },
			"every one":  func(int64) bool { return true },
		} {
			t.Run(name+"/"+which, func(t *testing.T) {
				inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
					broker := deadBroker(t, 2)
					produce(broker, 200)
					var ledger ledger
					m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
						return build(&ledger, func(r *kgo.Record) bool { return bad(r.Offset) })
					}, opts, toDead)
					broker.WaitCommitted(group, topic, 200)
					m.shutDown(t)
					counts := ledger.counts()
					for p := range int32(2) {
						var want []int64
						for o := range int64(100) {
							n := 1
							if bad(o) {
								want = append(want, o)
								n = 0
							}
							if counts[[2]int64{int64(p), o}] != n {
								t.Errorf("offset %d of partition %d was processed %d times, want %d", o, p, counts[[2]int64{int64(p), o}], n)
							}
						}
						got := origins(t, broker, p)
						slices.Sort(got) // helpers work at the same time
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("dead letters of partition %d (-want +got):\n%s", p, diff)
						}
					}
				})
			})
		}
	}
}

// I7: the offset of a message is committed only after its dead letter was
// acked; across a revoke and the end of the run as well.
func TestI7DeliveredBeforeCommitted(t *testing.T) {
	for _, end := range []string{"steady", "revoke", "shutdown"} {
		t.Run(end, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := deadBroker(t, 2)
				produce(broker, 20)
				var ledger ledger
				m := start(t, broker, invalidIf(&ledger, is("6", "7")), opts, toDead) // offset 3 of both partitions
				delay := broker.Delay(kmsg.Produce, 15*time.Second, memkafka.OnTopic(dead))
				broker.WaitStable(group, 1)
				time.Sleep(5 * time.Second)
				early := func() {
					t.Helper()
					if diff := cmp.Diff(map[int32]int64{0: 3, 1: 3}, broker.Committed(group, topic)); diff != "" {
						t.Errorf("committed before the ack (-want +got):\n%s", diff)
					}
					if s := m.Status(); s.DeadLetters.Pending != 2 {
						t.Errorf("%d dead letters are pending, want 2", s.DeadLetters.Pending)
					}
				}
				early()
				switch end {
				case "steady":
					time.Sleep(5 * time.Second)
					early()
				case "revoke":
					rival := broker.Join(group, topic, opts...)
					time.Sleep(6 * time.Second)
					early()
					broker.WaitStable(group, 2)
					rival.Leave()
				case "shutdown":
					m.shutDown(t)
				}
				broker.WaitCommitted(group, topic, 20)
				if n := len(broker.Records(dead)); n != 2 {
					t.Errorf("%d dead letters, want 2", n)
				}
				delay.Heal()
				m.shutDown(t)
				ledger.expectCounts(t, broker, "6", "7")
			})
		})
	}
}

// expectCounts checks that every record was processed once, but for these.
func (l *ledger) expectCounts(t *testing.T, broker *memkafka.Broker, but ...string) {
	t.Helper()
	counts := l.counts()
	for _, r := range broker.Records(topic) {
		want := 1
		if slices.Contains(but, string(r.Value)) {
			want = 0
		}
		if n := counts[[2]int64{int64(r.Partition), r.Offset}]; n != want {
			t.Errorf("%q was processed %d times, want %d", r.Value, n, want)
		}
	}
}

// I7: a limit trips at exactly the documented message; nothing from it on is
// committed; the error says which limit, the counts and the partition; and the
// next run counts anew.
func TestI7Limits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy arroyo.DeadLetterPolicy
		bad    func(offset int64) bool
		trips  int64 // offset
		want   arroyo.DeadLetterLimitError
	}{
		{"three in a row", arroyo.DeadLetterPolicy{MaxConsecutive: 3}, func(o int64) bool { return o%5 != 4 }, 3,
			arroyo.DeadLetterLimitError{Limit: "MaxConsecutive", Max: 3, Rejected: 4, Seen: 4, Consecutive: 4}},
		{"one in a row", arroyo.DeadLetterPolicy{MaxConsecutive: 1}, func(o int64) bool { return o == 10 || o == 12 || o == 20 || o == 21 || o > 30 }, 21,
			arroyo.DeadLetterLimitError{Limit: "MaxConsecutive", Max: 1, Rejected: 4, Seen: 22, Consecutive: 2}},
		{"a tenth", arroyo.DeadLetterPolicy{MaxRatio: 0.1}, func(o int64) bool { return o < 9 || o >= 140 && o < 150 }, 145,
			arroyo.DeadLetterLimitError{Limit: "MaxRatio", Max: 0.1, Rejected: 15, Seen: 146, Consecutive: 6}},
		{"the first hundred", arroyo.DeadLetterPolicy{MaxRatio: 0.5}, func(o int64) bool { return o < 51 || o == 99 }, 99,
			arroyo.DeadLetterLimitError{Limit: "MaxRatio", Max: 0.5, Rejected: 52, Seen: 100, Consecutive: 1}},
		{"exactly the share", arroyo.DeadLetterPolicy{MaxRatio: 0.29}, func(o int64) bool { return o < 28 || o == 99 || o == 100 }, 100,
			arroyo.DeadLetterLimitError{Limit: "MaxRatio", Max: 0.29, Rejected: 30, Seen: 101, Consecutive: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, way := range []string{"in order", "out of order"} {
				t.Run(way, func(t *testing.T) {
					inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
						broker := deadBroker(t, 2)
						produce(broker, 400)
						tt.policy.Topic = dead
						poison := errors.New("poison")
						rng := rand.New(rand.NewPCG(1, 2))
						pipeline := func() arroyo.Strategy[*kgo.Record] {
							return strategies.ForEachBatch(150, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
								if way == "out of order" {
									rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
								}
								for _, row := range rows {
									if row.Payload.Partition == 1 && tt.bad(row.Payload.Offset) {
										row.Reject(poison)
									} else {
										row.Ack()
									}
									if way == "out of order" {
										time.Sleep(time.Millisecond)
									}
								}
								return nil
							})
						}
						processor, err := arroyo.NewProcessor(newConsumer(t, broker, opts...), pipeline(), quiet, arroyo.DeadLetter(tt.policy))
						if err != nil {
							t.Fatal(err)
						}
						began := time.Now()
						err = processor.Run(t.Context())
						var got *arroyo.DeadLetterLimitError
						if !errors.As(err, &got) || !errors.Is(err, poison) {
							t.Fatalf("Run: %v, want a DeadLetterLimitError", err)
						}
						if took := time.Since(began); took > 5*time.Second {
							t.Errorf("Run ended after %v", took)
						}
						want := tt.want
						want.Partition, want.Offset, want.Err = arroyo.Partition{Topic: topic, Number: 1}, tt.trips, got.Err
						if *got != want {
							t.Errorf("got  %+v\nwant %+v", *got, want)
						}
						if c := broker.Committed(group, topic)[1]; c != tt.trips {
							t.Errorf("committed %d, want all before offset %d", c, tt.trips)
						}
						var letters []int64
						for o := range tt.trips {
							if tt.bad(o) {
								letters = append(letters, o)
							}
						}
						if diff := cmp.Diff(letters, origins(t, broker, 1)); diff != "" {
							t.Errorf("dead letters (-want +got):\n%s", diff)
						}
						// The next run meets it again, and counts from there.
						again := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
							return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
								if m.Payload.Partition == 1 && m.Payload.Offset == tt.trips {
									return arroyo.Invalid(poison)
								}
								return nil
							})
						}, opts, arroyo.DeadLetter(tt.policy))
						broker.WaitCommitted(group, topic, 400)
						again.shutDown(t)
						if diff := cmp.Diff(append(letters, tt.trips), origins(t, broker, 1)); diff != "" {
							t.Errorf("dead letters after the second run (-want +got):\n%s", diff)
						}
					})
				})
			}
		})
	}
}

// Dead letters that cannot be written: the processor waits, says so, and goes
// on when it heals; nothing is dropped and nothing is committed meanwhile.
func TestI7BlockedLetters(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fails func(broker *memkafka.Broker) (heal func())
		says  string
	}{
		{"not authorised", func(b *memkafka.Broker) func() {
			return b.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(dead)).Heal
		}, "TOPIC_AUTHORIZATION_FAILED"},
		{"too large", func(b *memkafka.Broker) func() {
			return b.Fail(kmsg.Produce, kerr.MessageTooLarge, memkafka.OnTopic(dead)).Heal
		}, "MESSAGE_TOO_LARGE"},
		{"not answered", func(b *memkafka.Broker) func() { return b.Swallow(kmsg.Produce, memkafka.OnTopic(dead)).Heal }, "no broker has acked it in time"},
		{"no such topic", func(b *memkafka.Broker) func() {
			b.DeleteTopic(dead)
			return func() { b.CreateTopic(dead, 1) }
		}, "UNKNOWN_TOPIC"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := deadBroker(t, 2)
				heal := tt.fails(broker)
				produce(broker, 20)
				var ledger ledger
				log := new(safeBuffer)
				m := start(t, broker, invalidIf(&ledger, is("7")), opts, toDead, arroyo.Logger(slog.New(slog.NewTextHandler(log, nil)))) // offset 3 of partition 1
				broker.WaitStable(group, 1)
				time.Sleep(5 * time.Minute)
				s := m.Status().DeadLetters
				if s.Pending != 1 || s.Delivered != 0 || s.Err == nil || !strings.Contains(s.Err.Error(), tt.says) {
					t.Errorf("status: %+v, want one that says %q", s, tt.says)
				}
				if n := strings.Count(log.String(), "dead letters cannot be delivered"); n != 1 {
					t.Errorf("the log says it %d times:\n%s", n, log)
				}
				if diff := cmp.Diff(map[int32]int64{0: 10, 1: 3}, broker.Committed(group, topic)); diff != "" {
					t.Errorf("committed (-want +got):\n%s", diff)
				}
				heal()
				broker.WaitCommitted(group, topic, 20)
				if s := m.Status().DeadLetters; s.Delivered != 1 || s.Pending != 0 || s.Err != nil {
					t.Errorf("status after it healed: %+v", s)
				}
				if n := strings.Count(log.String(), "dead letters are delivered again"); n != 1 {
					t.Errorf("the log tells of the end %d times:\n%s", n, log)
				}
				m.shutDown(t)
				ledger.expectCounts(t, broker, "7")
				if n := len(broker.Records(dead)); n < 1 || n > 2 { // an attempt that was not answered may have been written
					t.Errorf("%d dead letters", n)
				}
			})
		})
	}
}

// Under DeadLetterStop the run ends with the cause, and the message is left to
// the next run.
func TestI7StopWhenLettersFail(t *testing.T) {
	for name, fail := range map[string]func(b *memkafka.Broker){
		"an answer": func(b *memkafka.Broker) { b.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(dead)) },
		"no answer": func(b *memkafka.Broker) { b.Swallow(kmsg.Produce, memkafka.OnTopic(dead)) },
		"too large": func(b *memkafka.Broker) { b.Fail(kmsg.Produce, kerr.MessageTooLarge, memkafka.OnTopic(dead)) },
		"no topic":  func(b *memkafka.Broker) { b.DeleteTopic(dead) },
	} {
		t.Run(name, func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := deadBroker(t, 2)
				produce(broker, 20)
				fail(broker)
				var ledger ledger
				consumer := newConsumer(t, broker, opts...)
				processor, err := arroyo.NewProcessor(consumer, invalidIf(&ledger, is("7"))(), quiet,
					arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, OnFailure: arroyo.DeadLetterStop}))
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				err = processor.Run(t.Context())
				var failed *arroyo.DeadLetterError
				if !errors.As(err, &failed) || failed.Topic != dead || failed.Partition.Number != 1 || failed.Offset != 3 {
					t.Errorf("Run: %v, want a DeadLetterError of offset 3 of partition 1", err)
				}
				if want := map[string]error{
					"an answer": kerr.TopicAuthorizationFailed,
					"no answer": arroyo.ErrDeadLetterTimeout,
					"too large": kerr.MessageTooLarge,
					"no topic":  kerr.UnknownTopicOrPartition,
				}[name]; !errors.Is(err, want) {
					t.Errorf("Run: %v, want %v in it", err, want)
				}
				if took := time.Since(began); took > 40*time.Second {
					t.Errorf("Run ended after %v", took)
				}
				if diff := cmp.Diff(map[int32]int64{0: 10, 1: 3}, broker.Committed(group, topic)); diff != "" {
					t.Errorf("committed (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A dead letter in flight at a deadline is left to the next owner: at a revoke,
// and at the end of the run, whose error says why.
func TestI7LettersAtADeadline(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 2)
		produce(broker, 20)
		fault := broker.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic(dead))
		var ledger ledger
		m := start(t, broker, invalidIf(&ledger, is("6", "7")), opts, toDead, arroyo.DrainTimeout(10*time.Second))
		broker.WaitStable(group, 1)
		time.Sleep(2 * time.Second)
		rival := broker.Join(group, topic, opts...)
		joined := time.Now()
		broker.WaitStable(group, 2)
		if took := time.Since(joined); took > 25*time.Second {
			t.Errorf("the rival waited %v", took)
		}
		rival.Leave()
		broker.WaitStable(group, 1)
		if diff := cmp.Diff(map[int32]int64{0: 3, 1: 3}, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed (-want +got):\n%s", diff)
		}
		began := time.Now()
		err := m.stop()
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("Run ended after %v", took)
		}
		var failed *arroyo.DeadLetterError
		if !errors.Is(err, arroyo.ErrAbandoned) || !errors.As(err, &failed) || !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("Run: %v, want an AbandonedError and a DeadLetterError", err)
		}
		fault.Heal()
		next := start(t, broker, invalidIf(&ledger, is("6", "7")), opts, toDead)
		broker.WaitCommitted(group, topic, 20)
		next.shutDown(t)
		if n := len(broker.Records(dead)); n != 2 {
			t.Errorf("%d dead letters, want 2", n)
		}
	})
}

// A million invalid messages in a row, without limits, take what the producer
// takes, and no more memory than is in flight.
func TestI9PoisonStorm(t *testing.T) {
	const storm = 1_000_000
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		values := make([]string, 10_000)
		for i := range values {
			values[i] = "poison"
		}
		for range storm / len(values) {
			broker.Produce(topic, values...)
		}
		sink := &slowProducer{most: 500}
		var ledger ledger
		m := startMember(t, broker, invalidIf(&ledger, is("poison"))(), nil, arroyo.MaxInFlight(20_000),
			arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: dead, Producer: sink}))
		most := 0
		for sink.acked.Load() < storm {
			time.Sleep(100 * time.Millisecond)
			most = max(most, m.Status().DeadLetters.Pending)
		}
		broker.WaitCommitted(group, topic, storm)
		m.shutDown(t)
		if most > 150_000 { // the bound and a poll
			t.Errorf("%d dead letters were pending at once", most)
		}
		if n := sink.acked.Load(); n != storm {
			t.Errorf("%d dead letters, want %d", n, storm)
		}
	})
}

// slowProducer acks most records every 10 ms.
type slowProducer struct {
	most  int
	mu    sync.Mutex
	full  []func()
	acked atomic.Int64
}

func (p *slowProducer) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	p.mu.Lock()
	p.full = append(p.full, func() { p.acked.Add(1); promise(r, nil) })
	if len(p.full) == 1 {
		time.AfterFunc(10*time.Millisecond, p.flush)
	}
	wait := len(p.full) >= p.most
	p.mu.Unlock()
	if wait {
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *slowProducer) flush() {
	p.mu.Lock()
	acks := p.full
	p.full = nil
	p.mu.Unlock()
	for _, ack := range acks {
		ack()
	}
}

// The first verdict stands: an ack after a rejection and the reverse, and an
// Invalid for a batch of which some rows are settled.
func TestTheFirstVerdictStandsWithLetters(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 30)
		poison := errors.New("poison")
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.ForEachBatch(10, time.Second, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				rows[0].Ack()
				rows[0].Reject(poison)
				rows[1].Reject(poison)
				rows[1].Ack()
				rows[1].Reject(poison)
				for _, row := range rows[2:8] {
					row.Ack()
				}
				return arroyo.Invalid(errors.New("the batch"))
			})
		}, opts, toDead)
		broker.WaitCommitted(group, topic, 30)
		m.shutDown(t)
		if diff := cmp.Diff([]int64{1, 8, 9, 11, 18, 19, 21, 28, 29}, origins(t, broker, 0)); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// Without a policy the run stops at the first invalid message, and a restart
// meets it again.
func TestNoDeadLetterPolicy(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := deadBroker(t, 1)
		produce(broker, 10)
		var ledger ledger
		for range 2 {
			processor, err := arroyo.NewProcessor(newConsumer(t, broker, opts...), invalidIf(&ledger, is("4"))(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			err = processor.Run(t.Context())
			var step *arroyo.StepError
			if !errors.Is(err, arroyo.ErrNoDeadLetter) || !errors.As(err, &step) || step.Offset != 4 || !strings.Contains(err.Error(), "option DeadLetter") {
				t.Errorf("Run: %v", err)
			}
			if c := broker.Committed(group, topic)[0]; c != 4 {
				t.Errorf("committed %d, want 4", c)
			}
		}
		m := start(t, broker, invalidIf(&ledger, is("4")), opts, toDead)
		broker.WaitCommitted(group, topic, 10)
		m.shutDown(t)
	})
}

func TestDeadLetterRefusesBadInput(t *testing.T) {
	c, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(kgo.SeedBrokers("localhost:1")))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for say, policy := range map[string]arroyo.DeadLetterPolicy{
		"topic is empty":       {},
		"its own dead letters": {Topic: "a"},
		"MaxConsecutive is -1": {Topic: "d", MaxConsecutive: -1},
		"MaxRatio is -0.1":     {Topic: "d", MaxRatio: -0.1},
		"MaxRatio is 1.1":      {Topic: "d", MaxRatio: 1.1},
		"OnFailure is 7":       {Topic: "d", OnFailure: 7},
		"Timeout is -1ns":      {Topic: "d", Timeout: -1},
	} {
		_, err := arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), arroyo.DeadLetter(policy))
		var bad *arroyo.OptionError
		if !errors.As(err, &bad) || bad.Option != "DeadLetter" || !strings.Contains(err.Error(), say) {
			t.Errorf("%+v: %v, want an OptionError that says %q", policy, err, say)
		}
	}
}

// Letters of letters, and those of Sentry's Arroyo: what was added last counts.
func TestReadDeadLetter(t *testing.T) {
	h := func(pairs ...string) (headers []kgo.RecordHeader) {
		for i := 0; i < len(pairs); i += 2 {
			headers = append(headers, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return headers
	}
	ours := func(topic string) []kgo.RecordHeader {
		return h("original_partition", "3", "original_offset", "12", "original_topic", topic, "original_timestamp", "1000",
			"rejected_by_group", "g", "rejected_at", "2000", "rejected_in_step", "s", "rejected_because", "r")
	}
	sentry := h("original_partition", "4", "original_offset", "13")
	own := h("a", "1", "a", "2")
	for name, tt := range map[string]struct {
		headers, original []kgo.RecordHeader
		topic             string
		partition         int32 // -1: it is none
	}{
		"ours":                {slices.Concat(own, ours("t")), own, "t", 3},
		"Sentry's":            {slices.Concat(own, sentry), own, "", 4},
		"ours of ours":        {slices.Concat(own, ours("t"), ours("t.dead")), slices.Concat(own, ours("t")), "t.dead", 3},
		"ours of Sentry's":    {slices.Concat(own, sentry, ours("t.dead")), slices.Concat(own, sentry), "t.dead", 3},
		"Sentry's of ours":    {slices.Concat(own, ours("t"), sentry), slices.Concat(own, ours("t")), "", 4},
		"none":                {own, nil, "", -1},
		"without headers":     {nil, nil, "", -1},
		"a part":              {ours("t")[:7], nil, "", -1},
		"not a number":        {h("original_partition", "4", "original_offset", "x"), nil, "", -1},
		"too large a number":  {h("original_partition", "4294967296", "original_offset", "1"), nil, "", -1},
		"with another behind": {slices.Concat(ours("t"), own), nil, "", -1},
	} {
		original, origin, err := arroyo.ReadDeadLetter(&kgo.Record{Headers: tt.headers})
		if tt.partition < 0 {
			if !errors.Is(err, arroyo.ErrNotADeadLetter) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(headersOf(&kgo.Record{Headers: tt.original}), headersOf(original)); diff != "" || original.Topic != tt.topic || original.Partition != tt.partition || origin.Partition.Topic != tt.topic {
			t.Errorf("%s: the original is of %s/%d, with headers (-want +got):\n%s", name, original.Topic, original.Partition, diff)
		}
	}
}

func FuzzReadDeadLetter(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), "a", "1", "original_partition", "3", "original_offset", "12")
	f.Add([]byte(nil), []byte("v"), "original_partition", "3", "original_offset", "x", "", "")
	f.Fuzz(func(t *testing.T, key, value []byte, h1, v1, h2, v2, h3, v3 string) {
		r := &kgo.Record{Key: key, Value: value, Headers: []kgo.RecordHeader{
			{Key: h1, Value: []byte(v1)}, {Key: h2, Value: []byte(v2)}, {Key: h3, Value: []byte(v3)},
		}}
		original, _, err := arroyo.ReadDeadLetter(r)
		if err != nil {
			if !errors.Is(err, arroyo.ErrNotADeadLetter) || original != nil {
				t.Errorf("%v, %v", original, err)
			}
			return
		}
		if h2 != "original_partition" || h3 != "original_offset" || len(original.Headers) != 1 || original.Headers[0].Key != h1 {
			t.Errorf("%v was taken for a dead letter of %v", r.Headers, original.Headers)
		}
	})
}
