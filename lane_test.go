package arroyo

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// gated lets through one message for each token.
type gated struct{ tokens chan struct{} }

func (g gated) Submit(_ context.Context, msgs []Message[*kgo.Record]) error {
	for range msgs {
		<-g.tokens
	}
	AckAll(msgs)
	return nil
}
func (gated) Flush(context.Context) error { return nil }
func (gated) Close(context.Context) error { return nil }

// I9: the queue of a lane that is never empty does not grow.
func TestI9QueueDoesNotGrow(t *testing.T) {
	g := gated{make(chan struct{})}
	r := NewRig(g)
	e := r.Assign(Partition{"events", 0})
	offset := int64(0)
	add := func() {
		r.Feed(e, &kgo.Record{Offset: offset})
		offset++
	}
	for range 10 {
		add()
	}
	for range 20_000 { // one in, one out: about ten are queued
		add()
		g.tokens <- struct{}{}
		r.Watermark(e)
	}
	r.lane.mu.Lock()
	length := len(r.lane.queue)
	r.lane.mu.Unlock()
	if length > 1000 {
		t.Errorf("the slice of a queue of about ten spans has %d elements", length)
	}
	close(g.tokens)
	if err := r.Finish(); err != nil {
		t.Fatal(err)
	}
}

// A step that blocks the lane is told that the lane is wanted: not only by the
// drain, which may have begun before it blocked.
func TestARequestOfTheLaneIsSeen(t *testing.T) {
	r := NewRig(gated{})
	for name, request := range map[string]func(){
		"flush":  func() { r.lane.requestFlush() },
		"finish": r.lane.requestFinish,
	} {
		c := Draining(r.lane.Context())
		request()
		select {
		case <-c:
		default:
			t.Errorf("%s: nobody is told", name)
		}
	}
	<-r.Done()
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
}
