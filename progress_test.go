package arroyo

import (
	"runtime"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// I9: what is done behind a record that is stuck is let go of.
func TestI9DoneBehindAStuckRecord(t *testing.T) {
	p, run := testProgress()
	const slices, size = 1000, 100
	var stuck []Message[*kgo.Record]
	for i := range int64(slices) {
		p.advance()
		msgs := messagesOf(appendTo(p, recordsFrom(i*size, size)))
		if i%250 == 0 {
			stuck = append(stuck, msgs[10])
			msgs = append(msgs[:10], msgs[11:]...)
		}
		AckAll(msgs)
	}
	p.advance()
	if n := len(p.spans); n > 2*64 {
		t.Errorf("%d spans are kept for four records that are stuck", n)
	}
	for i, m := range stuck {
		if offset, _, ok := p.oldest(); !ok || offset != int64(i)*250*size+10 || p.watermark.offset != offset {
			t.Errorf("the oldest is %d, %v, and the watermark %d; want both to be record %d that is stuck", offset, ok, p.watermark.offset, i)
		}
		if n := p.pending(); n != len(stuck)-i {
			t.Errorf("%d are pending, want %d", n, len(stuck)-i)
		}
		m.Ack()
		p.advance()
	}
	if want := (position{slices * size, -1}); p.watermark != want || len(p.spans) != 0 {
		t.Errorf("watermark %v with %d spans, want %v with none", p.watermark, len(p.spans), want)
	}
	if run.inFlight.Load() != 0 || run.bytes.Load() != 0 || p.inFlight.Load() != 0 {
		t.Errorf("%d records of %d bytes are in flight, %d of the epoch, want none", run.inFlight.Load(), run.bytes.Load(), p.inFlight.Load())
	}
}

// A forgotten epoch's records are taken off the account once, whoever settles
// them meanwhile.
func TestForgetWhileItIsSettled(t *testing.T) {
	for round := range 300 {
		p, run := testProgress()
		p.stop = func() bool { return true }
		msgs := messagesOf(appendTo(p, recordsFrom(0, 1000)))
		for _, m := range msgs {
			m.Payload.Value = []byte("0123456789")
		}
		var settling sync.WaitGroup
		for part := range 4 {
			settling.Go(func() {
				for i := part * 250; i < (part+1)*250; i++ {
					switch i % 3 {
					case 0, 1:
						msgs[i].Ack()
					case 2:
						msgs[i].Return()
					}
				}
			})
		}
		for range round {
			runtime.Gosched()
		}
		p.advance()
		p.forget()
		settling.Wait()
		if run.inFlight.Load() != 0 || run.bytes.Load() != 0 || p.inFlight.Load() != 0 {
			t.Fatalf("%d records of %d bytes are in flight, %d of the epoch, want none", run.inFlight.Load(), run.bytes.Load(), p.inFlight.Load())
		}
	}
}
