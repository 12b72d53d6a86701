package memkafka_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inside and outside run a test in a bubble and in real time.
func insideAndOutside(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
	t.Run("real time", test)
}

// fakeTB is a test that may fail: it notes what it is told.
type fakeTB struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

// runFake runs what would be a test function, and its cleanups, and returns what it complained of.
func runFake(t *testing.T, test func(t testing.TB)) string {
	t.Helper()
	complaints, _ := runFakeLogged(t, test)
	return complaints
}

// runFakeLogged also returns what it logged.
func runFakeLogged(t *testing.T, test func(t testing.TB)) (complaints, logs string) {
	t.Helper()
	f := &fakeTB{TB: t}
	wait := func(fn func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			fn()
		}()
		<-done
	}
	wait(func() { test(f) })
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		wait(f.cleanups[i])
	}
	return strings.Join(f.errors, "\n"), strings.Join(f.logs, "\n")
}

func (f *fakeTB) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.errors) > 0
}

func (f *fakeTB) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs = append(f.logs, fmt.Sprintf(format, args...))
}

func (f *fakeTB) Helper()           {}
func (f *fakeTB) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
func (f *fakeTB) Error(args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.errors = append(f.errors, fmt.Sprint(args...))
}
func (f *fakeTB) Errorf(format string, args ...any) { f.Error(fmt.Sprintf(format, args...)) }
func (f *fakeTB) Fatal(args ...any)                 { f.Error(args...); runtime.Goexit() }
func (f *fakeTB) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

// panicOf returns the error that fn panics with, or nil.
func panicOf(fn func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			err = v
		default:
			err = fmt.Errorf("panicked with a %T: %v", v, v)
		}
	}()
	fn()
	return nil
}

func mustContain(t *testing.T, got string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("got %q, which lacks %q", got, part)
		}
	}
}

// newClient makes a client that is closed when the test ends.
func newClient(t testing.TB, broker *memkafka.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(broker.ClientOptions(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// read polls until n records came, for some minutes at most: in a bubble, where
// waiting takes no time, a test would go on for ever.
func read(t testing.TB, client *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil || fetches.IsClientClosed() {
			t.Fatalf("read %d records of %d: %v", len(records), n, fetches.Err0())
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

// consume is a run loop as users write it: it commits what it has read.
func consume(client *kgo.Client) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			fetches := client.PollFetches(ctx)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := client.CommitRecords(ctx, fetches.Records()...); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
}

func values(records []*kgo.Record) []string {
	var vs []string
	for _, r := range records {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// open makes a broker without a test, for what must be seen to panic.
func open(t *testing.T, opts ...memkafka.Option) *memkafka.Broker {
	t.Helper()
	broker, err := memkafka.Open(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker
}
