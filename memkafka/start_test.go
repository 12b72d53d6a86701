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
)

func TestStartAndStop(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		boom := errors.New("boom")
		stop := memkafka.Start(t, func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w after %w", boom, ctx.Err())
		})
		first := stop()
		if !errors.Is(first, boom) || !errors.Is(first, context.Canceled) {
			t.Errorf("stop returned %v", first)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := stop(); err != first {
					t.Errorf("stop returned %v, and before %v", err, first)
				}
			})
		}
		wg.Wait()
	})
}

func TestStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := memkafka.Start(t, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		})
		begin := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("stop returned after %v", took)
		}
	})
}

func TestEndOfATestThatDidNotStop(t *testing.T) {
	boom := errors.New("boom")
	untilDone := func(err func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return err(ctx)
		}
	}
	for name, test := range map[string]struct {
		run  func(context.Context) error
		want string // "": the test passes
	}{
		"nil":                         {untilDone(func(context.Context) error { return nil }), ""},
		"what the context says":       {untilDone(func(ctx context.Context) error { return ctx.Err() }), ""},
		"an error":                    {untilDone(func(context.Context) error { return boom }), "boom"},
		"an error with the context's": {untilDone(func(ctx context.Context) error { return fmt.Errorf("drain: %w", ctx.Err()) }), "drain: context canceled"},
		"ended before with nil":       {func(context.Context) error { return nil }, ""},
		"ended before with an error":  {func(context.Context) error { return boom }, "boom"},
		"ended before as if stopped":  {func(context.Context) error { return context.Canceled }, "context canceled"},
		"gone":                        {func(context.Context) error { runtime.Goexit(); return nil }, "runtime.Goexit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := false
				got := runFake(t, func(t testing.TB) {
					memkafka.Start(t, func(ctx context.Context) error {
						defer func() { ended = true }()
						return test.run(ctx)
					})
					if strings.HasPrefix(name, "ended before") {
						synctest.Wait()
					}
				})
				if !ended {
					t.Error("the test ended before the function")
				}
				if test.want == "" && got != "" {
					t.Errorf("the test failed: %s", got)
				}
				if test.want != "" {
					mustContain(t, got, "memkafka: ", test.want)
				}
			})
		})
	}
}

func TestEndOfATestThatStopped(t *testing.T) {
	got := runFake(t, func(t testing.TB) {
		stop := memkafka.Start(t, func(ctx context.Context) error { return errors.New("boom") })
		if err := stop(); err == nil || err.Error() != "boom" {
			t.Errorf("stop returned %v", err)
		}
	})
	if got != "" {
		t.Errorf("stop returned the error, and still the test failed: %s", got)
	}
}

func TestStartNothing(t *testing.T) {
	mustContain(t, runFake(t, func(t testing.TB) { memkafka.Start(t, nil) }), "needs a function")
}
