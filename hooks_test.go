package arroyo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// allHooks has every method that a hook can have.
type allHooks func(name string)

func (f allHooks) OnAssigned([]arroyo.Epoch)                                { f("assigned") }
func (f allHooks) OnRevoked([]arroyo.Epoch, time.Duration)                  { f("revoked") }
func (f allHooks) OnLost([]arroyo.Epoch, error)                             { f("lost") }
func (f allHooks) OnFetched(arroyo.Epoch, int, int)                         { f("fetched") }
func (f allHooks) OnSubmitted(arroyo.Epoch, int, time.Duration)             { f("submitted") }
func (f allHooks) OnCommitted(map[arroyo.Epoch]int64, time.Duration, error) { f("committed") }
func (f allHooks) OnPaused(arroyo.Epoch, bool)                              { f("paused") }
func (f allHooks) OnStalled(arroyo.PartitionStatus, bool)                   { f("stalled") }

var hookNames = []string{"assigned", "fetched", "submitted", "committed", "paused", "stalled", "lost", "revoked"}

// runWithHooks lets all hooks be called and returns what Run does.
func runWithHooks(t *testing.T, hooks allHooks, started func(*arroyo.Processor)) error {
	broker := memkafka.New(t, memkafka.Topic(topic, 1))
	for range 50 {
		produce(broker, 10)
	}
	processor, err := arroyo.NewPartitionedProcessor(newConsumer(t, broker, kgo.FetchMaxPartitionBytes(1000)), func(context.Context, arroyo.Epoch) (arroyo.Strategy[*kgo.Record], error) {
		return strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if m.Payload.Offset == 100 {
				time.Sleep(10 * time.Second)
			}
			return nil
		}), nil
	}, quiet, arroyo.Hooks(hooks), arroyo.MaxPartitionInFlight(100), arroyo.StallAfter(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	started(processor)
	stop := memkafka.Start(t, processor.Run)
	for range 60 {
		time.Sleep(time.Second)
		if processor.Status().State == arroyo.StateEnded {
			return stop()
		}
	}
	kick(t, broker)
	time.Sleep(time.Minute)
	return stop()
}

// A hook may ask for Status and Health.
func TestStatusFromAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var processor *arroyo.Processor
		called := make(map[string]bool)
		asked := make(chan string, 10_000)
		err := runWithHooks(t, func(name string) {
			if s := processor.Status(); s.Group != group || s.State == arroyo.StateNew {
				t.Errorf("%s: %+v", name, s)
			}
			_ = processor.Health()
			asked <- name
		}, func(p *arroyo.Processor) { processor = p })
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		for close(asked); len(asked) > 0; {
			called[<-asked] = true
		}
		for _, name := range hookNames {
			if !called[name] {
				t.Errorf("%s: the hook was not called", name)
			}
		}
	})
}

// A hook that panics ends the run, with its stack, and the group is left.
func TestPanicInAHook(t *testing.T) {
	for _, panics := range hookNames {
		t.Run(panics, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := runWithHooks(t, func(name string) {
					if name == panics {
						panic("boom")
					}
				}, func(*arroyo.Processor) {})
				var p *arroyo.PanicError
				if !errors.As(err, &p) || p.Value != "boom" || len(p.Stack) == 0 {
					t.Errorf("Run: %v, want a PanicError", err)
				}
			})
		})
	}
}

// Status answers while a run that is past its end waits for user code.
func TestStatusWhileTheEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		release := make(chan struct{})
		consumer := newConsumer(t, broker)
		var ledger ledger
		processor, err := arroyo.NewProcessor(consumer, stuck(&ledger, "7", release), quiet, arroyo.DrainTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- processor.Run(t.Context()) }()
		broker.WaitCommitted(group, topic, 13)
		consumer.Close()
		time.Sleep(time.Second)
		began := time.Now()
		s := processor.Status()
		if took := time.Since(began); took > 0 || s.State != arroyo.StateDraining {
			t.Errorf("Status says %q after %v, want draining at once", s.State, took)
		}
		close(release)
		if err := <-ended; !errors.Is(err, arroyo.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
	})
}
