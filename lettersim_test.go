package arroyo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// I7, at every single commit: whatever producers, members and rivals do, no
// offset is committed past a message that was neither processed nor has its
// letter acked; and in the end every message has one of the two.
func TestI7NoCommitPassesALetter(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				const partitions, n = 3, 600
				rng := rand.New(rand.NewPCG(seed, 3))
				broker := memkafka.New(t, memkafka.Topic(topic, partitions))
				poison := func(o int64) bool { return (uint64(o)*2654435761+seed)>>3%5 == 0 }
				acked := watchCommits(t, broker)
				letters := &sometimes{rng: rand.New(rand.NewPCG(seed, 4)), acked: func(r *kgo.Record) {
					_, origin, err := arroyo.ReadDeadLetter(r)
					if err != nil {
						t.Error(err)
					}
					acked(origin.Partition.Number, origin.Offset)
				}}
				pipeline := func() arroyo.Strategy[*kgo.Record] {
					return strategies.ForEachBatch(20, 200*time.Millisecond, func(ctx context.Context, rows []arroyo.Message[*kgo.Record]) error {
						letters.pause(50 * time.Millisecond)
						for _, row := range rows {
							if r := row.Payload; poison(r.Offset) {
								row.Reject(errors.New("poison"))
							} else {
								acked(r.Partition, r.Offset)
							}
						}
						return nil
					})
				}
				policy := arroyo.DeadLetterPolicy{Topic: dead, Producer: letters, Timeout: time.Second}
				if seed%2 == 1 {
					policy.MaxConsecutive = n // judged, and never passed
				}
				begin := func(name string) *member {
					return start(t, broker, pipeline, append(opts, kgo.ClientID(name)), arroyo.DeadLetter(policy),
						arroyo.DrainTimeout(3*time.Second), arroyo.CommitInterval(100*time.Millisecond))
				}
				members := []*member{begin("m0"), begin("m1")}
				for i := range n / 10 {
					for range 10 {
						broker.Produce(topic, "x")
					}
					switch rng.IntN(12) {
					case 0:
						rival := broker.Join(group, topic, opts...)
						time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
						rival.Leave()
					case 1:
						if broker.Members(group) > 0 {
							broker.ForceRebalance(group)
						}
					case 2:
						if g := broker.Group(group); len(g.Members) > 0 {
							broker.Kick(group, g.Members[0].ID)
						}
					case 3:
						// Letters that were not acked at the deadline, or a last
						// commit that met a rebalance.
						if err := members[i%2].stop(); err != nil && !errors.Is(err, arroyo.ErrAbandoned) && !errors.As(err, new(*arroyo.CommitError)) {
							t.Errorf("Run: %v", err)
						}
						members[i%2] = begin(fmt.Sprintf("m%d.%d", i%2, i))
					}
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				}
				letters.heal()
				broker.WaitCommitted(group, topic, n)
				time.Sleep(10 * time.Second) // for what was done twice
				for _, m := range members {
					if s := m.Status(); s.DeadLetters.Pending != 0 || s.DeadLetters.Err != nil || s.InFlight != 0 {
						t.Errorf("status at the end: %d in flight, %+v", s.InFlight, s.DeadLetters)
					}
					m.shutDown(t)
				}
			})
		})
	}
}

// watchCommits checks every commit that the broker is sent. It returns the
// function that says that a record is done.
func watchCommits(t *testing.T, broker *memkafka.Broker) (done func(partition int32, offset int64)) {
	type key struct {
		partition int32
		offset    int64
	}
	var mu sync.Mutex
	seen := make(map[key]bool)
	broker.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		broker.Cluster().KeepControl()
		mu.Lock()
		defer mu.Unlock()
		for _, rt := range kreq.(*kmsg.OffsetCommitRequest).Topics {
			for _, rp := range rt.Partitions {
				for o := range rp.Offset {
					if !seen[key{rp.Partition, o}] {
						t.Errorf("offset %d of partition %d is committed, and %d is not done", rp.Offset, rp.Partition, o)
						break
					}
				}
			}
		}
		return nil, nil, false
	})
	return func(partition int32, offset int64) {
		mu.Lock()
		defer mu.Unlock()
		seen[key{partition, offset}] = true
	}
}

// sometimes is a producer that fails, is slow, blocks, or does not tell, until
// it is healed; then it tells of everything.
type sometimes struct {
	acked func(*kgo.Record)

	mu     sync.Mutex
	rng    *rand.Rand
	healed bool
	held   []func()
}

func (p *sometimes) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	ack := func() { p.acked(r); promise(r, nil) }
	p.mu.Lock()
	n, d := p.rng.IntN(100), time.Duration(p.rng.IntN(1500))*time.Millisecond
	if p.healed {
		n = 0
	}
	if n == 99 {
		p.held = append(p.held, ack)
	}
	p.mu.Unlock()
	switch {
	case n < 30:
		ack()
	case n < 60:
		time.AfterFunc(d, ack)
	case n < 75:
		promise(r, errors.New("failed"))
	case n < 95:
		time.AfterFunc(d, func() { promise(r, errors.New("failed late")) })
	case n < 99:
		select {
		case <-time.After(d):
			ack()
		case <-ctx.Done():
			promise(r, ctx.Err())
		}
	}
}

func (p *sometimes) heal() {
	p.mu.Lock()
	p.healed = true
	held := p.held
	p.mu.Unlock()
	for _, ack := range held {
		ack()
	}
}

func (p *sometimes) pause(most time.Duration) {
	p.mu.Lock()
	d := time.Duration(p.rng.Int64N(int64(most)))
	p.mu.Unlock()
	time.Sleep(d)
}
