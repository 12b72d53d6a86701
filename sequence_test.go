package arroyo_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// The same scenario under every protocol, with dynamic and with static members:
// alone, a second member joins, goes, and a drain. The exact events, with how
// many partitions each concerns, are what the documentation says.
func TestEventSequences(t *testing.T) {
	for _, tt := range []struct {
		protocol string
		static   bool
		want     string
	}{
		{"cooperative", false, "Assigned 4, Revoked 2, Assigned 2, Revoked 4, Closed"},
		{"cooperative", true, "Assigned 4, Revoked 2, Assigned 2, Revoked 4, Closed"},
		{"eager", false, "Assigned 4, Revoked 4, Assigned 2, Revoked 2, Assigned 4, Revoked 4, Closed"},
		{"eager", true, "Assigned 4, Revoked 4, Assigned 2, Revoked 2, Assigned 4, Revoked 4, Closed"},
		{"kip848", false, "Assigned 4, Revoked 2, Assigned 2, Revoked 4, Closed"},
		{"kip848", true, "Assigned 4, Revoked 2, Assigned 2, Revoked 4, Closed"},
	} {
		t.Run(fmt.Sprintf("%s/static=%v", tt.protocol, tt.static), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opts, rivalOpts []kgo.Opt
				for _, p := range protocols {
					if p.name == tt.protocol {
						opts, rivalOpts = slices.Clone(p.opts), slices.Clone(p.opts)
					}
				}
				if tt.static {
					opts = append(opts, kgo.InstanceID("one"))
					rivalOpts = append(rivalOpts, kgo.InstanceID("two"))
				}
				broker := memkafka.New(t, memkafka.Topic(topic, 4))
				c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
				var mu sync.Mutex
				var events []string
				perEpoch := make(map[arroyo.Epoch][]string)
				log := func(kind string, epochs []arroyo.Epoch) {
					mu.Lock()
					defer mu.Unlock()
					if len(epochs) > 0 {
						events = append(events, fmt.Sprintf("%s %d", kind, len(epochs)))
					}
					for _, e := range epochs {
						perEpoch[e] = append(perEpoch[e], kind)
					}
				}
				done := inBackground(t, c, func(ev arroyo.Event) {
					switch ev := ev.(type) {
					case *arroyo.Assigned:
						log("Assigned", ev.Epochs)
					case *arroyo.Revoked:
						log("Revoked", ev.Epochs)
					case *arroyo.Lost:
						log("Lost", ev.Epochs)
					case *arroyo.Closed:
						mu.Lock()
						events = append(events, "Closed")
						mu.Unlock()
					case *arroyo.Fetched:
						mu.Lock()
						perEpoch[ev.Epoch] = append(perEpoch[ev.Epoch], "Fetched")
						mu.Unlock()
					}
				})
				broker.WaitStable(group, 1)
				time.Sleep(time.Second)
				produce(broker, 8)
				time.Sleep(time.Second)
				rival := broker.Join(group, topic, rivalOpts...)
				broker.WaitStable(group, 2)
				time.Sleep(10 * time.Second)
				if tt.static {
					rival.Die() // a static member that leaves is waited for as well
				} else {
					rival.Leave()
				}
				broker.WaitStable(group, 1)
				time.Sleep(10 * time.Second)
				c.Drain(time.Minute)
				<-done
				mu.Lock()
				defer mu.Unlock()
				if got := strings.Join(events, ", "); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				for e, kinds := range perEpoch {
					kinds = slices.Compact(kinds)
					got := strings.Join(kinds, " ")
					if got != "Assigned Fetched Revoked" && got != "Assigned Revoked" {
						t.Errorf("%s: %s", e, got)
					}
				}
			})
		})
	}
}
