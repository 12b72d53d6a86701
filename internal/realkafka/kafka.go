package realkafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Kafka is a running Kafka: one that this program started, or the one that
// ARROYO_TEST_BROKERS names. Its methods may be used by parallel tests.
type Kafka struct {
	brokers []string
	broker  *broker // nil if somebody else started it
}

// Options configure the broker that [Open] starts. The zero value is good.
type Options struct {
	// Config adds to the broker's properties and replaces those of the same
	// name, for instance "group.consumer.min.session.timeout.ms".
	Config map[string]string
}

// Open starts a broker on free ports of loopback, with its data in a new
// temporary folder, and returns when it is ready. The caller closes it. The
// error is [ErrUnavailable] when Java or the jars are missing.
//
// Tests use [Start].
func Open(ctx context.Context, o Options) (*Kafka, error) {
	inst, err := findInstallation(ctx)
	if err != nil {
		return nil, err
	}
	const attempts = 3
	for attempt := 1; ; attempt++ {
		b, err := newBroker(ctx, inst, o)
		if err == nil {
			return &Kafka{brokers: []string{b.ports.broker}, broker: b}, nil
		}
		// Test binaries run side by side and look for ports at the same time.
		if attempt == attempts || !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("start a Kafka: %w", err)
		}
	}
}

// connect returns a Kafka that somebody else started, when it is ready.
func connect(ctx context.Context, brokers []string) (*Kafka, error) {
	if err := waitReady(ctx, brokers, nil); err != nil {
		return nil, fmt.Errorf("use the Kafka of %s, unset it to start one: %w", envBrokers, err)
	}
	return &Kafka{brokers: brokers}, nil
}

// Close ends the broker and removes its data. It leaves a Kafka that somebody
// else started alone.
func (k *Kafka) Close() error {
	if k.broker == nil {
		return nil
	}
	return k.broker.close()
}

// Wait returns nil when the context ends, or an error with the end of the
// broker's log when the broker ends by itself before.
func (k *Kafka) Wait(ctx context.Context) error {
	if k.broker == nil {
		<-ctx.Done()
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.broker.process().exited:
		}
		// A signal from the terminal reaches the broker as well as us.
		if ctx.Err() != nil {
			return nil
		}
		// After a restart there is another process to wait for.
		if err := k.broker.check(); err != nil {
			return err
		}
	}
}

// Brokers returns the addresses to connect to, host:port each.
func (k *Kafka) Brokers() []string {
	return slices.Clone(k.brokers)
}

// ClientOptions returns the options with which a client connects.
func (k *Kafka) ClientOptions() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(k.brokers...)}
}

// Restart stops the broker in order, starts it again with the same data and
// addresses and returns when it is ready. It skips the test if the Kafka is not
// one that this program started.
//
// The other tests of the binary have the same broker: do not call it in, or
// next to, a parallel test.
func (k *Kafka) Restart(tb testing.TB) {
	tb.Helper()
	err := k.RestartWith(tb.Context())
	if errors.Is(err, ErrForeign) {
		tb.Skipf("restarts the broker: %v: unset it to run this test", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// ErrForeign is the error of [Kafka.RestartWith] for a Kafka that somebody else
// started.
var ErrForeign = errors.New("that is not possible with the Kafka of " + envBrokers)

// RestartWith is [Kafka.Restart] for programs: it returns an error, which is
// [ErrForeign] if the broker is not ours. The context bounds it.
func (k *Kafka) RestartWith(ctx context.Context) error {
	if k.broker == nil {
		return ErrForeign
	}
	if err := k.broker.restart(ctx); err != nil {
		return fmt.Errorf("restart the broker: %w", err)
	}
	return nil
}
