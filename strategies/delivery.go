package strategies

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// delivery is a record on its way to the brokers, and the message that it was
// made of.
type delivery[T any] struct {
	m      arroyo.Message[T]
	record *kgo.Record
	ctx    context.Context // of the message's Submit
	alone  bool            // no other is in flight
}

// produceContext is the context of a call of Produce. It ends as its parent
// does while the call waits for room, and not once the record is buffered: kgo
// fails all that is buffered for a partition when the context of one record
// has ended, and so the outputs of others.
type produceContext struct {
	context.Context
	buffered atomic.Bool
}

func (c *produceContext) Done() <-chan struct{} {
	if c.buffered.Load() {
		return nil
	}
	return c.Context.Done()
}

func (c *produceContext) Err() error {
	if c.buffered.Load() {
		return nil
	}
	return c.Context.Err()
}

// window is what a Produce step has in flight. The lane adds to it, and acks
// take away, on any goroutine.
type window[T any] struct {
	max  int
	step *arroyo.Step
	post func()        // makes the lane look
	news chan struct{} // a token when the lane, which may wait, should

	mu       sync.Mutex
	inFlight int
	again    []*delivery[T] // refused together with others; to be tried alone
	alone    bool           // one of them is in flight
	err      error          // what ends the run
	wanted   bool           // the lane waits for room
	posted   bool           // it was made to look
	closing  bool           // it waits until nothing is in flight
}

func (w *window[T]) begin(step *arroyo.Step, post func()) {
	w.step, w.post, w.news = step, post, make(chan struct{}, 1)
}

func (w *window[T]) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight++; w.inFlight == 1 {
		w.step.Working(1)
	}
}

// done is called when a record is written, or is not.
func (w *window[T]) done(d *delivery[T], err error) {
	if err == nil {
		d.m.Ack()
	}
	var again bool
	var failure error
	if err != nil && !d.m.Fenced() {
		again, failure = w.judge(d, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight--; w.inFlight == 0 {
		w.step.Working(-1)
	}
	w.alone = w.alone && !d.alone
	if again {
		w.again = append(w.again, d)
	}
	if w.err == nil {
		w.err = failure
	}
	if w.err != nil || w.closing && w.inFlight == 0 || len(w.again) > 0 && w.inFlight == 0 || w.wanted && w.room() {
		signal(w.news)
		if !w.posted {
			w.posted = true
			w.post()
		}
	}
}

// judge says what becomes of a message whose record was not written: it is
// settled, or tried again, alone, or ends the run.
func (w *window[T]) judge(d *delivery[T], err error) (again bool, failure error) {
	passes := mayPass(err)
	failed := &ProduceError{Topic: d.record.Topic, Retriable: passes, Err: err}
	switch {
	case isRefusal(err) && !d.alone:
		return true, nil
	case isRefusal(err):
		d.m.Reject(arroyo.NewStepError(w.step.Name(), d.m, arroyo.Invalid(failed)))
		return false, nil
	case passes && d.m.ReturnIfDraining():
		return false, nil
	}
	return false, arroyo.NewStepError(w.step.Name(), d.m, failed)
}

// room reports whether more may be produced. The mutex is held.
func (w *window[T]) room() bool { return w.inFlight < w.max && len(w.again) == 0 && !w.alone }

func (w *window[T]) hasRoom() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err == nil && w.room()
}

// await is hasRoom for those who want to know when there is.
func (w *window[T]) await() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = !w.room()
	return !w.wanted
}

// nextAlone returns one that is to be tried alone, once that is possible.
func (w *window[T]) nextAlone() *delivery[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight > 0 || len(w.again) == 0 {
		return nil
	}
	d := w.again[0]
	w.again = w.again[1:]
	d.alone, w.alone = true, true
	return d
}

func (w *window[T]) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// looked is called by the post.
func (w *window[T]) looked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posted = false
}

func (w *window[T]) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closing = true
}

func (w *window[T]) isEmpty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight == 0 && len(w.again) == 0
}
