package memkafka_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo/memkafka"
)

// Time passes for a client that asks without a pause, so that what it waits for
// can happen.
func TestTimePassesForWhoAsksAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t)
		client, err := kgo.NewClient(broker.ClientOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		asked := 0
		for over := time.Now().Add(time.Minute); time.Now().Before(over); asked++ {
			if _, err := kmsg.NewPtrApiVersionsRequest().RequestWith(t.Context(), client); err != nil {
				t.Fatal(err)
			}
			if asked > 1_000_000 {
				t.Fatal("no time passes")
			}
		}
	})
}
