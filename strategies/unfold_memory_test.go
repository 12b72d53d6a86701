package strategies

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// A message with very many children leaves no memory behind that is as large.
func TestUnfoldForgets(t *testing.T) {
	s := Unfold(func(context.Context, arroyo.Message[*kgo.Record]) ([]int, error) { return make([]int, 1_000_000), nil },
		Noop[int]()).(*unfold[*kgo.Record, int])
	rig := arroyo.NewRig(s)
	rig.Feed(rig.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Offset: 1})
	if err := rig.Settle(); err != nil {
		t.Fatal(err)
	}
	if err := rig.Finish(); err != nil {
		t.Fatal(err)
	}
	if n := cap(s.out); n > 10_000 {
		t.Errorf("there is still room for %d children", n)
	}
}
