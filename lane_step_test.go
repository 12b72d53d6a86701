package arroyo_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// counted is a step with an account that does something in each Submit.
func counted(name string, do func(context.Context, *arroyo.Step) error) step {
	account := arroyo.NewStep(name)
	return step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
		account.Enter(ctx, len(msgs))
		return do(ctx, account)
	}}
}

// failsAs runs a pipeline on one record and returns the step that its error
// names.
func failsAs(t *testing.T, pipeline arroyo.Strategy[*kgo.Record]) string {
	t.Helper()
	r := arroyo.NewRig(pipeline)
	r.Feed(r.Assign(partition0), recordsFrom(0, "a")...)
	<-r.Done()
	at, ok := errors.AsType[*arroyo.StepError](r.Err())
	if !ok {
		t.Fatalf("the run ended with %v", r.Err())
	}
	return at.Step
}

// A step is called by the branches that lead to it, also in what it does later:
// on a timer, in a post, on a goroutine, on a fork.
func TestBranchesInNames(t *testing.T) {
	broken := errors.New("broken")
	fails := func(context.Context) error { return broken }
	for name, later := range map[string]func(ctx context.Context, f func(context.Context) error) error{
		"now": func(ctx context.Context, f func(context.Context) error) error { return f(ctx) },
		"timer": func(ctx context.Context, f func(context.Context) error) error {
			arroyo.LaneOf(ctx).After(1, f)
			return nil
		},
		"post": func(ctx context.Context, f func(context.Context) error) error { arroyo.LaneOf(ctx).Post(f); return nil },
		"go":   func(ctx context.Context, f func(context.Context) error) error { arroyo.LaneOf(ctx).Go(f); return nil },
		"lane's context": func(ctx context.Context, f func(context.Context) error) error {
			return f(arroyo.LaneOf(ctx).Context())
		},
		"timer of a timer": func(ctx context.Context, f func(context.Context) error) error {
			arroyo.LaneOf(ctx).After(1, func(ctx context.Context) error {
				arroyo.LaneOf(ctx).After(1, f)
				return nil
			})
			return nil
		},
		"fork": func(ctx context.Context, f func(context.Context) error) error {
			fork := arroyo.LaneOf(ctx).Fork()
			jobs := make(chan func() error, 1)
			jobs <- func() error { return f(fork.In(ctx)) }
			arroyo.LaneOf(ctx).Go(func(context.Context) error { return fork.Serve(jobs) })
			return nil
		},
		"fork's timer": func(ctx context.Context, f func(context.Context) error) error {
			fork := arroyo.LaneOf(ctx).Fork()
			fork.After(1, f)
			arroyo.LaneOf(ctx).Go(func(context.Context) error { return fork.Serve(nil) })
			return nil
		},
		"a context of its own": func(ctx context.Context, f func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return f(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := arroyo.NewStep("insert")
				got := failsAs(t, step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
					ctx = arroyo.WithBranch(arroyo.WithBranch(ctx, "route/payment"), "route/card")
					return later(ctx, func(ctx context.Context) error {
						inner.Enter(ctx, 1)
						return fails(ctx)
					})
				}})
				if want := "route/payment/route/card/insert"; got != want {
					t.Errorf("the step is called %q, want %q", got, want)
				}
			})
		})
	}
	if got, want := arroyo.NewStep("insert").Name(), "insert"; got != want {
		t.Errorf("a step that was never used is called %q, want %q", got, want)
	}
}

// Two branches share a lane, and have views of it that tell them apart.
func TestBranchesShareTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		r := arroyo.NewRig(step{submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
			a, b := arroyo.LaneOf(arroyo.WithBranch(ctx, "a")), arroyo.LaneOf(arroyo.WithBranch(ctx, "b"))
			if again := arroyo.LaneOf(arroyo.WithBranch(ctx, "a")); again != a || a == b {
				t.Error("a branch does not have one view of the lane, or two share one")
			}
			for _, l := range []*arroyo.Lane{a, b, arroyo.LaneOf(ctx), a} {
				l.Post(func(ctx context.Context) error {
					step := arroyo.NewStep("s")
					step.Enter(ctx, 1)
					log = append(log, step.Name())
					return nil
				})
			}
			arroyo.AckAll(msgs)
			return nil
		}})
		r.Feed(r.Assign(partition0), recordsFrom(0, "a")...)
		if err := r.Settle(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a/s", "b/s", "s", "a/s"}, log); diff != "" {
			t.Errorf("ran (-want +got):\n%s", diff)
		}
	})
}

// Counts are kept by step.
func TestStepCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(counted("insert", func(_ context.Context, s *arroyo.Step) error {
			s.Count("rows", 3)
			s.Count("rows", 4)
			s.Count("full", 1)
			return nil
		}))
		r.Feed(r.Assign(partition0), recordsFrom(0, "a")...)
		synctest.Wait()
		if diff := cmp.Diff(map[string]int64{"rows": 7, "full": 1}, r.Counts("insert")); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		r.Abandon()
		<-r.Done()
	})
}

// While a step's own goroutine works and the lane waits, it is that step that
// is named, whatever the lane did last.
func TestWorkingStepIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		working int
		want    string
	}{{"works", 1, "fetch"}, {"does not work", 0, "insert"}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				insert := arroyo.NewStep("insert")
				got := failsAs(t, counted("fetch", func(ctx context.Context, fetch *arroyo.Step) error {
					arroyo.LaneOf(ctx).Go(func(context.Context) error {
						fetch.Working(tt.working)
						time.Sleep(time.Second)
						return errors.New("broken")
					})
					insert.Enter(ctx, 1)
					return nil
				}))
				if got != tt.want {
					t.Errorf("the error names %q, want %q", got, tt.want)
				}
			})
		})
	}
}
