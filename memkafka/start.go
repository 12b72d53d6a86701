package memkafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

var errGoexit = errors.New("memkafka: the function given to Start did not return: it called runtime.Goexit, maybe by t.FailNow, which only the test's goroutine may call")

// Start calls run on a goroutine of its own, with a context that ends when stop is called or the test ends. What Start
// was made for is a consumer's run loop.
//
// stop cancels the context, waits until run has returned, and returns run's error, the same each time. It may be called
// from any goroutine.
//
// If the test ends and stop was not called, its cleanup does the same, and an error from run fails the test, whether run
// returned it then or long before; except for a bare context.Canceled, which is how many loops end when they are told
// to. Cleanups run last in, first out: a broker made before Start is there until run has returned.
func Start(t testing.TB, run func(context.Context) error) (stop func() error) {
	t.Helper()
	if run == nil {
		t.Fatalf("memkafka: Start needs a function to run")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	err := errGoexit
	go func() {
		defer close(done)
		err = run(ctx)
	}()

	end := func() error {
		cancel()
		<-done
		return err
	}
	var stopped atomic.Bool
	t.Cleanup(func() {
		t.Helper()
		early := isClosed(done)
		if err := end(); err != nil && !stopped.Load() && (early || err != context.Canceled) {
			t.Errorf("memkafka: what Start runs ended with an error, and stop was not called to look at it: %v", err)
		}
	})
	return func() error {
		stopped.Store(true)
		return end()
	}
}
