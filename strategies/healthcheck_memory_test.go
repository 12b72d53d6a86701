package strategies

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Healthcheck forgets messages that are settled, also between two touches.
func TestHealthcheckForgets(t *testing.T) {
	s := Healthcheck(filepath.Join(t.TempDir(), "health"), time.Hour, Noop[*kgo.Record]()).(*healthcheck[*kgo.Record])
	rig := arroyo.NewRig(s)
	e := rig.Assign(arroyo.Partition{Topic: "events"})
	for i := range 100 {
		records := make([]*kgo.Record, 1000)
		for j := range records {
			records[j] = &kgo.Record{Offset: int64(1000*i + j)}
		}
		rig.Feed(e, records...)
		if err := rig.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	if err := rig.Finish(); err != nil {
		t.Fatal(err)
	}
	if n := cap(s.under); n > 10_000 {
		t.Errorf("there is room for %d messages of 100,000 that are settled", n)
	}
}
