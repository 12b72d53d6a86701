package strategies

import (
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Interval forgets epochs that are over.
func TestIntervalForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Interval(0, Noop[Span]()).(*interval)
		rig := arroyo.NewRig(s)
		most := 0
		for range 100 {
			e := rig.Assign(arroyo.Partition{Topic: "events"})
			rig.Feed(e, &kgo.Record{Offset: 1})
			synctest.Wait()
			most = max(most, len(s.open))
			rig.Fence(e)
		}
		if most > 1 {
			t.Errorf("%d intervals were open at once, of one partition", most)
		}
		if err := rig.Finish(); err != nil {
			t.Fatal(err)
		}
	})
}
