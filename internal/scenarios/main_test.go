package scenarios

import (
	"flag"
	"os"
	"testing"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Scenarios on the real Kafka wait for timers most of the time.
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(realkafka.MainWith(m, realkafka.Options{Config: map[string]string{
		// Under KIP-848 these are the broker's; the defaults are 45 s and 5 s.
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.session.timeout.ms":        "6000",
		"group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.heartbeat.interval.ms":     "300",
	}}))
}
