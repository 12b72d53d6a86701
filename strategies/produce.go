package strategies

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// Producer is what Produce produces with. A *kgo.Client is one. Produce calls
// the promise once, from any goroutine, when the record is written or failed;
// it may block until there is room.
type Producer interface {
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
}

// Produce ends a pipeline: it produces the record that outgoing makes of each
// message, and acks the message once the brokers have acked that record. So no
// offset is committed before its output is written.
//
// outgoing chooses the topic, or leaves it to kgo.DefaultProduceTopic; the
// function Outgoing makes a record with the message's key, headers and
// timestamp. A nil value is a tombstone and stays one. The record has to be a
// new one: the input's own is refused. With its error outgoing says what becomes
// of the message, as a task does: arroyo.Drop produces nothing. Retry and
// Timeout are about outgoing.
//
// Records are produced in order, so those of one partition are written in order.
// Up to kgo.MaxBufferedRecords, 10,000 unless it is set, are in flight; beyond
// them Submit blocks, which is backpressure. A drain waits for what is in
// flight, and returns what was not produced.
//
// Errors that may pass are retried by the client, for ever unless
// kgo.RecordDeliveryTimeout or kgo.RecordRetries is set; but a connection that is
// closed at once, as a proxy does while its broker is gone, only with
// kgo.AlwaysRetryEOF. One that comes out of it is a *ProduceError. If the brokers
// refuse the record for what it is (too large, or invalid), the message is
// rejected as arroyo.Invalid. So that no other is, a record that was refused
// together with others of a batch is tried once more alone. Any other error ends
// the run, but if it may pass and the partition is being drained, the message is
// returned.
//
// The client is the caller's: it may be that of other steps and of the consumer
// (Consumer.Client), and is closed after the run. One that flushes by hand
// (kgo.ManualFlushing) is refused, because nobody would flush it.
func Produce[T any](producer Producer, outgoing func(context.Context, arroyo.Message[T]) (*kgo.Record, error), opts ...Option) arroyo.Strategy[T] {
	require("Produce", "the producer is nil", producer != nil)
	require("Produce", "the function is nil", outgoing != nil)
	c := configure("Produce", outgoing, opts)
	s := &produce[T]{
		config:   c,
		producer: producer,
		outgoing: attempted(&c.attempts, outgoing),
	}
	s.window.max = 10_000
	if client, ok := producer.(*kgo.Client); ok {
		require("Produce", "the client is nil", client != nil)
		require("Produce", "the client has kgo.ManualFlushing, and nobody would flush it", client.OptValue(kgo.ManualFlushing) != true)
		if most, ok := client.OptValue(kgo.MaxBufferedRecords).(int64); ok && most > 0 {
			s.window.max = int(min(most, 1_000_000))
		}
	}
	return s
}

// ProduceError says that a record could not be produced.
type ProduceError struct {
	Topic     string
	Retriable bool // it may pass; the client gave up by its own limits
	Err       error
}

func (e *ProduceError) Error() string {
	if isFirstEOF(e.Err) {
		return fmt.Sprintf("produce to topic %q: %v; if the configuration is right, a proxy or a broker that was ending closed the connection, and kgo.AlwaysRetryEOF makes the client try again", e.Topic, e.Err)
	}
	if e.Retriable {
		return fmt.Sprintf("produce to topic %q: %v; the client gave up (see kgo.RecordDeliveryTimeout and kgo.RecordRetries)", e.Topic, e.Err)
	}
	return fmt.Sprintf("produce to topic %q: %v", e.Topic, e.Err)
}

func (e *ProduceError) Unwrap() error { return e.Err }

// isRefusal reports whether an error is about the record itself, or about one
// in the same batch.
func isRefusal(err error) bool {
	for _, refusal := range []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func mayPass(err error) bool {
	return errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, kgo.ErrRecordRetries) || kerr.IsRetriable(err) || isFirstEOF(err)
}

// isFirstEOF reports whether a connection was closed before it was of any use.
// The client takes that for wrong TLS or SASL, and does not try again; but what
// stands between it and a broker that restarts does it as well.
func isFirstEOF(err error) bool {
	_, ok := errors.AsType[*kgo.ErrFirstReadEOF](err)
	return ok
}

// produce does all of its work on the lane, but for its window.
type produce[T any] struct {
	*config
	producer Producer
	outgoing func(context.Context, arroyo.Message[T]) (*kgo.Record, error)

	lane    *arroyo.Lane
	drains  <-chan struct{} // from before the Submit in progress
	backlog []pending[T]    // messages that there is no room for yet
	first   int             // of backlog
	reaches reaches
	window  window[T]
}

// pending is a message that is to be produced, under its Submit's context.
type pending[T any] struct {
	ctx context.Context
	m   arroyo.Message[T]
}

func (s *produce[T]) start(ctx context.Context) {
	if s.lane == nil {
		s.lane = arroyo.LaneOf(ctx)
		s.drains = arroyo.Draining(s.lane.Context())
		s.window.begin(s.step, func() { s.lane.Post(s.look) })
	}
}

func (s *produce[T]) Submit(ctx context.Context, msgs []arroyo.Message[T]) error {
	s.step.Enter(ctx, len(msgs))
	s.start(ctx)
	for len(msgs) > 0 && s.first == len(s.backlog) && s.window.hasRoom() {
		if err := s.one(ctx, msgs[0]); err != nil {
			return err
		}
		msgs = msgs[1:]
	}
	for _, m := range msgs {
		s.backlog = append(s.backlog, pending[T]{ctx, m})
	}
	for {
		if err := s.pump(); err != nil || s.first == len(s.backlog) {
			return err
		}
		select {
		case <-s.window.news:
		case <-ctx.Done():
			return nil
		case <-s.drains:
			// The lane is wanted. The channel is from before, so a drain
			// that began when this Submit did is not missed.
			s.drains = arroyo.Draining(s.lane.Context())
			return nil
		}
	}
}

// look is pump as a post.
func (s *produce[T]) look(context.Context) error {
	s.window.looked()
	return s.pump()
}

// pump produces what there is room for, and fails if something could not be
// produced.
func (s *produce[T]) pump() error {
	for {
		if err := s.window.failure(); err != nil {
			return err
		}
		if d := s.window.nextAlone(); d != nil {
			if err := s.send(d); err != nil {
				return err
			}
			continue
		}
		if s.first == len(s.backlog) || !s.window.await() {
			return nil
		}
		p := s.backlog[s.first]
		s.backlog[s.first] = pending[T]{}
		if s.first++; s.first > len(s.backlog)/2 {
			n := copy(s.backlog, s.backlog[s.first:])
			clear(s.backlog[n:])
			s.backlog, s.first = s.backlog[:n], 0
		}
		if err := s.one(p.ctx, p.m); err != nil {
			return err
		}
	}
}

// one produces what is to be made of a message.
func (s *produce[T]) one(ctx context.Context, m arroyo.Message[T]) error {
	if m.Fenced() {
		return nil
	}
	if m.MayReturn() && isBehindAll(&s.reaches, m) {
		m.Return()
		return nil
	}
	begin(&s.reaches, m)
	r, err := s.make(ctx, m)
	if err != nil {
		if m.Fenced() && !isPanic(err) {
			return nil
		}
		return settleFailed(s.step, m, err)
	}
	if r == nil || r == m.Record() {
		what := "the function returned no record and no error; return arroyo.Drop to produce nothing"
		if r != nil {
			what = "the function returned the input's own record, which is not to be changed: make a new one, with Outgoing"
		}
		return arroyo.NewStepError(s.step.Name(), m, errors.New(what))
	}
	return s.send(&delivery[T]{m: m, record: r, ctx: ctx})
}

// make calls the user's function.
func (s *produce[T]) make(ctx context.Context, m arroyo.Message[T]) (r *kgo.Record, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, m, v)
		}
	}()
	return s.outgoing(ctx, m)
}

// send hands a record to the producer.
func (s *produce[T]) send(d *delivery[T]) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked(s.step, d.m, v)
		}
	}()
	ctx := &produceContext{Context: d.ctx}
	defer ctx.buffered.Store(true)
	if d.record.Context != nil {
		d.record.Context = context.WithoutCancel(d.record.Context)
	}
	s.window.add()
	s.producer.Produce(ctx, d.record, func(_ *kgo.Record, err error) { s.window.done(d, err) })
	return nil
}

// Flush returns what was not produced of epochs that are being drained. What is
// in flight settles by itself.
func (s *produce[T]) Flush(ctx context.Context) error {
	s.start(ctx)
	kept := s.backlog[:0]
	for _, p := range s.backlog[s.first:] {
		switch {
		case p.m.Fenced():
		case p.m.MayReturn() && isBehindAll(&s.reaches, p.m):
			p.m.Return()
		default:
			kept = append(kept, p)
		}
	}
	clear(s.backlog[len(kept):])
	s.backlog, s.first = kept, 0
	return s.pump()
}

// Close waits until nothing is in flight, as long as ctx lasts.
func (s *produce[T]) Close(ctx context.Context) error {
	if s.lane == nil {
		return nil
	}
	s.step.Enter(ctx, 0)
	s.window.close()
	for ctx.Err() == nil {
		if err := s.pump(); err != nil {
			return err
		}
		if s.first == len(s.backlog) && s.window.isEmpty() {
			return nil
		}
		select {
		case <-s.window.news:
		case <-ctx.Done():
		}
	}
	return nil
}
