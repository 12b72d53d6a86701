package memkafka_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A consumer that is left running is named, and ended, also in a bubble, where it would run for ever.
func TestClientLeftRunning(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				ended := make(chan error, 1)
				complaints, logs := runFakeLogged(t, func(tb testing.TB) {
					broker := memkafka.New(tb, memkafka.Topic("events", 2))
					client, err := kgo.NewClient(append(append(broker.ClientOptions(),
						kgo.ClientID("forgotten"), kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll()), opts...)...)
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						for {
							fetches := client.PollFetches(context.Background())
							if fetches.IsClientClosed() {
								ended <- nil
								return
							}
						}
					}()
					broker.Produce("events", "a")
					broker.WaitStable("g", 1)
				})
				mustContain(t, complaints, `client "forgotten" at 10.0.0.2, a member of group "g", is still running at the end of the test`,
					"close it", "memkafka.Start")
				mustContain(t, logs, `client "forgotten" at 10.0.0.2, a member of group "g", was left running`)
				<-ended
			})
		})
	}
}

// It is named also if it is not connected at the moment.
func TestClientLeftRunningOffTheNetwork(t *testing.T) {
	for name, cut := range map[string]func(*memkafka.Host){"cut": (*memkafka.Host).Cut, "black hole": (*memkafka.Host).BlackHole} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				complaints := runFake(t, func(tb testing.TB) {
					broker := memkafka.New(tb, memkafka.Topic("events", 2))
					host := broker.Host()
					for _, opts := range [][]kgo.Opt{{
						kgo.ClientID("member"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events"), kgo.DisableAutoCommit(),
					}, {kgo.ClientID("producer")}} {
						client, err := kgo.NewClient(append(host.ClientOptions(), opts...)...)
						if err != nil {
							t.Fatal(err)
						}
						client.Ping(t.Context())
					}
					broker.WaitStable("g", 1)
					cut(host)
					time.Sleep(time.Minute)
				})
				mustContain(t, complaints, `client "member" at 10.0.0.2, a member of group "g", is still running`, `client "producer" at 10.0.0.2 is still running`)
			})
		})
	}
}

// One that can't be ended is named. If its callback never returned, that would be a "deadlock" in a bubble.
func TestClientLeftRunningWithABusyCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		complaints := runFake(t, func(tb testing.TB) {
			broker := memkafka.New(tb, memkafka.Topic("events", 2))
			_, err := kgo.NewClient(append(broker.ClientOptions(), kgo.ClientID("busy"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events"), kgo.DisableAutoCommit(),
				kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) { <-release }))...)
			if err != nil {
				t.Fatal(err)
			}
			broker.WaitStable("g", 1)
		})
		mustContain(t, complaints, `client "busy" at 10.0.0.2, a member of group "g", is still running`, "can't be closed within 5s", "OnPartitionsRevoked")
		close(release)
		time.Sleep(time.Minute)
	})
}

func TestClosedClientsAreNotLeft(t *testing.T) {
	for name, opts := range protocols {
		t.Run(name, func(t *testing.T) {
			insideAndOutside(t, func(t *testing.T) {
				complaints := runFake(t, func(tb testing.TB) {
					broker := memkafka.New(tb, memkafka.Topic("events", 2))
					broker.Join("g", "events", opts...) // a rival may stay
					client := newClient(tb, broker, append([]kgo.Opt{kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit()}, opts...)...)
					memkafka.Start(tb, consume(client))
					broker.Produce("events", "a", "b")
				})
				if complaints != "" {
					t.Error(complaints)
				}
			})
		})
	}
}
