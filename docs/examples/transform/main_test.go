package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newBroker(t *testing.T) *memkafka.Broker {
	return memkafka.New(t, memkafka.Topic("logs", 4), memkafka.Topic("logs.dead", 1),
		memkafka.Topic("logs.info", 2), memkafka.Topic("logs.warning", 2), memkafka.Topic("logs.error", 2))
}

func start(t *testing.T, broker *memkafka.Broker) (stop func() error) {
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, broker.ClientOptions()...) })
}

// write produces a line of a host.
func write(broker *memkafka.Broker, host int, line string) *kgo.Record {
	r := &kgo.Record{
		Topic: "logs", Partition: int32(host % 4),
		Key: fmt.Append(nil, "host-", host), Value: []byte(line),
		Headers:   []kgo.RecordHeader{{Key: "trace", Value: fmt.Append(nil, line)}},
		Timestamp: time.Now().Add(-time.Hour).Truncate(time.Millisecond),
	}
	broker.ProduceRecords(r)
	return r
}

// Each line is in the topic of its level, with key, headers and timestamp, and
// those of a host are in order.
func TestLinesAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		stop := start(t, broker)
		type output struct {
			Line
			Key, Trace string
			Time       time.Time
		}
		want := make(map[string][]output) // by topic and host
		for i := range 400 {
			host, level := i%10, []string{"info", "warning", "error", "debug"}[i/10%4]
			text := fmt.Sprint("line ", i)
			r := write(broker, host, level+" "+text)
			if level != "debug" {
				key := string(r.Key)
				at := "logs." + level + " " + key
				want[at] = append(want[at], output{Line{key, level, text}, key, level + " " + text, r.Timestamp})
			}
			time.Sleep(10 * time.Millisecond)
		}
		broker.WaitCaughtUp("transform", "logs")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}

		got := make(map[string][]output)
		for _, topic := range []string{"logs.info", "logs.warning", "logs.error"} {
			for _, r := range broker.Records(topic) {
				var line Line
				if err := json.Unmarshal(r.Value, &line); err != nil {
					t.Fatal(err)
				}
				at := topic + " " + string(r.Key)
				got[at] = append(got[at], output{line, string(r.Key), string(r.Headers[0].Value), r.Timestamp})
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	})
}

func TestOtherLinesAreDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		stop := start(t, broker)
		lines := []string{"info ok", "panic!", "", "error bad"}
		for _, line := range lines {
			write(broker, 1, line)
		}
		broker.WaitCaughtUp("transform", "logs")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		var dead []string
		for _, r := range broker.Records("logs.dead") {
			original, _, err := arroyo.ReadDeadLetter(r)
			if err != nil {
				t.Fatal(err)
			}
			dead = append(dead, string(original.Value))
		}
		if diff := cmp.Diff([]string{"panic!", ""}, dead); diff != "" {
			t.Errorf("dead letters (-want +got):\n%s", diff)
		}
	})
}

// A line is committed when its output is written, and no sooner.
func TestOutputsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		stop := start(t, broker)
		broker.WaitStable("transform", 1)
		slow := broker.Delay(kmsg.Produce, 20*time.Second, memkafka.OnTopic("logs.error"), memkafka.Times(1))
		write(broker, 4, "info one")
		write(broker, 4, "error two")
		write(broker, 4, "info three")
		slow.Wait(1)
		time.Sleep(10 * time.Second)
		if at := broker.Committed("transform", "logs")[0]; at > 1 {
			t.Errorf("committed %d, and the output of offset 1 is not written", at)
		}
		broker.WaitCaughtUp("transform", "logs")
		if n := len(broker.Records("logs.error")); n != 1 {
			t.Errorf("%d errors were written, want 1", n)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// A topic that may not be written to ends the run, and nothing is lost.
func TestNotAuthorised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		fault := broker.Fail(kmsg.Produce, kerr.TopicAuthorizationFailed, memkafka.OnTopic("logs.error"))
		stop := start(t, broker)
		write(broker, 4, "info one")
		write(broker, 4, "error two")
		write(broker, 4, "info three")
		time.Sleep(time.Minute)
		err := stop()
		failed, ok := errors.AsType[*strategies.ProduceError](err)
		if !ok || failed.Topic != "logs.error" || !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("run: %v, want that logs.error is not authorised", err)
		}
		if at := broker.Committed("transform", "logs")[0]; at > 1 {
			t.Errorf("committed %d, want at most 1: the error is not written", at)
		}
		fault.Heal()
		stop = start(t, broker)
		broker.WaitCaughtUp("transform", "logs")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if n := len(broker.Records("logs.error")); n != 1 {
			t.Errorf("%d errors were written, want 1", n)
		}
	})
}
