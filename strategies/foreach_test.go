package strategies_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

// I2: ForEach acks many messages together when it gets many at once. What the
// function is done with when it fails or panics is done all the same, and one
// that is stuck keeps back the acks of a few before it at most.
func TestI2ForEachOfManyAtOnce(t *testing.T) {
	const all, last, few = 100, 70, 15
	type messages = arroyo.Message[*kgo.Record]
	for name, c := range map[string]struct {
		happens     func(ctx context.Context) error
		least, most int64
	}{
		"fails":  {func(context.Context) error { return errors.New("no") }, last, last},
		"panics": {func(context.Context) error { panic("no") }, last, last},
		"stuck":  {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, last - few, last},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := onLane(t, strategies.Batch(all, time.Hour, strategies.Unbatch(strategies.ForEach(func(ctx context.Context, m messages) error {
					if m.Record().Offset == last {
						return c.happens(ctx)
					}
					return nil
				}))))
				e := r.assign(0)
				r.feed(e, make([]string, all)...)
				if at, _ := r.Watermark(e); at < c.least || at > c.most {
					t.Errorf("the watermark is %d, and %d messages are done", at, last)
				}
				r.Abandon()
				<-r.Done()
				if at, _ := r.Watermark(e); at > last {
					t.Errorf("the watermark is %d, and %d messages are done", at, last)
				}
			})
		})
	}
}
