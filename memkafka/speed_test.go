package memkafka_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What takes long on a real broker costs next to nothing in a bubble. The limit is for the best of a few attempts,
// because the machine may be busy with other things.
func TestVirtualTimeIsCheap(t *testing.T) {
	const limit = 300 * time.Millisecond
	for name, opts := range protocols {
		for what, scenario := range map[string]func(t *testing.T){
			"a session timeout": func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 8))
				a := broker.Join("g", "events", opts...)
				b := broker.Join("g", "events", opts...)
				broker.WaitStable("g", 2)
				begin := time.Now()
				a.Die()
				broker.WaitStable("g", 1)
				if took := time.Since(begin); took < 40*time.Second {
					t.Errorf("took over after %v", took)
				}
				mustOwnAll(t, 8, b)
			},
			"a stall of 5 minutes": func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 8))
				a := broker.Join("g", "events", append([]kgo.Opt{kgo.RebalanceTimeout(10 * time.Minute)}, opts...)...)
				broker.WaitStable("g", 1)
				a.Hang()
				b := broker.Join("g", "events", append([]kgo.Opt{kgo.RebalanceTimeout(10 * time.Minute)}, opts...)...)
				time.Sleep(5 * time.Minute)
				a.Resume()
				broker.WaitStable("g", 2)
				mustOwnAll(t, 8, a, b)
			},
			"an hour of idle commits": func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 8))
				client := newClient(t, broker, append([]kgo.Opt{kgo.ConsumeTopics("events"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit()}, opts...)...)
				broker.Produce("events", "a", "b", "c", "d", "e", "f", "g", "h")
				records := read(t, client, 8)
				commits := 0
				for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(5 * time.Second) {
					if err := client.CommitRecords(t.Context(), records...); err != nil {
						t.Fatal(err)
					}
					commits++
				}
				if commits < 700 || broker.Committed("g", "events")[7] != 1 {
					t.Errorf("%d commits", commits)
				}
			},
			"a slow broker": func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic("events", 8))
				fault := broker.Delay(kmsg.Fetch, 10*time.Second)
				client := newClient(t, broker, kgo.ConsumeTopics("events"))
				broker.Produce("events", "a")
				read(t, client, 1)
				if fault.Hits() == 0 {
					t.Error("no delay")
				}
			},
		} {
			t.Run(name+": "+what, func(t *testing.T) {
				best := time.Hour
				for range 5 {
					begin := time.Now()
					synctest.Test(t, scenario)
					if best = min(best, time.Since(begin)); best < limit {
						break
					}
				}
				t.Logf("took %v", best)
				if best > limit && !raceDetector {
					t.Errorf("took %v of real time, want at most %v", best, limit)
				}
			})
		}
	}
}

func TestNewIsQuick(t *testing.T) {
	best := time.Hour
	for range 20 {
		begin := time.Now()
		broker, err := memkafka.Open(memkafka.Topic("events", 4))
		took := time.Since(begin)
		if err != nil {
			t.Fatal(err)
		}
		broker.Close()
		best = min(best, took)
	}
	t.Logf("took %v", best)
	if best > 5*time.Millisecond && !raceDetector {
		t.Errorf("a broker with a topic takes %v, want at most 5 ms", best)
	}
}
