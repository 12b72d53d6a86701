package arroyo_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// endings are how a consumer can end.
var endings = map[string]func(t *testing.T, c *arroyo.Consumer){
	"Drain": func(t *testing.T, c *arroyo.Consumer) {
		c.Drain(5 * time.Second)
		poll(t, c, func(ev arroyo.Event) bool {
			_, over := ev.(*arroyo.Closed)
			return over
		})
	},
	"Close": func(_ *testing.T, c *arroyo.Consumer) { c.Close() },
}

// A static member of KIP-848 says that it goes, with its instance ID, without
// which Kafka refuses that; and is not heard of afterwards, which would undo it.
func TestStaticMemberStepsAside(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				var aside, later atomic.Int32
				broker.Cluster().ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					broker.Cluster().KeepControl()
					req := kreq.(*kmsg.ConsumerGroupHeartbeatRequest)
					switch {
					case req.MemberEpoch == -2 && req.InstanceID != nil && *req.InstanceID == "one":
						aside.Add(1)
					case req.MemberEpoch >= 0 && aside.Load() > 0:
						later.Add(1)
					}
					return nil, nil, false
				})
				c := newConsumer(t, broker, append(protocols[2].opts, kgo.InstanceID("one"))...)
				expect[*arroyo.Assigned](t, c)
				time.Sleep(20 * time.Second)
				end(t, c)
				time.Sleep(20 * time.Second)
				if n := aside.Load(); n != 1 {
					t.Errorf("it said %d times that it goes, want once", n)
				}
				if n := later.Load(); n != 0 {
					t.Errorf("%d heartbeats after that", n)
				}
				if n := broker.Members(group); n != 1 {
					t.Errorf("the group has %d members, want 1 that is waited for", n)
				}
			})
		})
	}
}

// A dynamic member does not stay, and one of the classic protocols sends no such
// thing.
func TestOthersDoNotStepAside(t *testing.T) {
	for name, opts := range map[string][]kgo.Opt{
		"dynamic":     protocols[2].opts,
		"cooperative": {kgo.InstanceID("one")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				var aside atomic.Int32
				broker.Cluster().ControlKey(int16(kmsg.ConsumerGroupHeartbeat), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
					broker.Cluster().KeepControl()
					if kreq.(*kmsg.ConsumerGroupHeartbeatRequest).MemberEpoch == -2 {
						aside.Add(1)
					}
					return nil, nil, false
				})
				c := newConsumer(t, broker, opts...)
				expect[*arroyo.Assigned](t, c)
				c.Close()
				if n := aside.Load(); n != 0 {
					t.Errorf("it said %d times that it steps aside", n)
				}
			})
		})
	}
}

// It is told in a bounded time, or not at all.
func TestSteppingAsideIsBounded(t *testing.T) {
	for what, cut := range map[string]func(*memkafka.Broker, *memkafka.Host){
		"refused":        func(_ *memkafka.Broker, h *memkafka.Host) { h.Cut() },
		"black-holed":    func(_ *memkafka.Broker, h *memkafka.Host) { h.BlackHole() },
		"never answered": func(b *memkafka.Broker, _ *memkafka.Host) { b.Swallow(kmsg.ConsumerGroupHeartbeat) },
	} {
		for name, end := range endings {
			t.Run(what+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broker := memkafka.New(t, memkafka.Topic(topic, 2))
					host := broker.Host()
					c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(host.ClientOptions()...),
						arroyo.ClientOptions(append(protocols[2].opts, kgo.InstanceID("one"))...))
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					expect[*arroyo.Assigned](t, c)
					cut(broker, host)
					time.Sleep(time.Second)
					began := time.Now()
					end(t, c)
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("it took %v to end", took)
					}
				})
			})
		}
	}
}
