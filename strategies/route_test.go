package strategies_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// byFirst routes by the first letter of a value.
func byFirst(m records) string { return string(m.Payload.Value[:1]) }

// branchStep notes what a branch gets, and how it is flushed and closed.
type branchStep struct {
	got     list[string]
	flushes int
	closes  int
	onClose func() error
}

func (b *branchStep) Submit(_ context.Context, msgs []records) error {
	for _, m := range msgs {
		b.got.add(value(m))
	}
	arroyo.AckAll(msgs)
	return nil
}

func (b *branchStep) Flush(context.Context) error { b.flushes++; return nil }

func (b *branchStep) Close(context.Context) error {
	b.closes++
	if b.onClose != nil {
		return b.onClose()
	}
	return nil
}

// Each branch gets its messages, in order; so does the fallback.
func TestRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a, b, rest branchStep
		r := arroyo.NewRig(strategies.Route(byFirst, strategies.Branches[*kgo.Record]{"a": &a, "b": &b, strategies.Fallback: &rest}))
		e := r.Assign(arroyo.Partition{Topic: "events"})
		want := make(map[string][]string)
		var rs []*kgo.Record
		for i := range 500 {
			first := string("aaabbbabcdd"[i*i%11])
			v := fmt.Sprint(first, i)
			rs = append(rs, &kgo.Record{Offset: int64(i), Value: []byte(v)})
			if first > "b" {
				first = strategies.Fallback
			}
			want[first] = append(want[first], v)
		}
		r.Feed(e, rs...)
		if err := r.Settle(); err != nil {
			t.Fatal(err)
		}
		if err := r.Finish(); err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{"a": a.got.all(), "b": b.got.all(), strategies.Fallback: rest.got.all()}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the branches got (-want +got):\n%s", diff)
		}
		for name, b := range map[string]*branchStep{"a": &a, "b": &b, "fallback": &rest} {
			if b.flushes != 1 || b.closes != 1 {
				t.Errorf("branch %s was flushed %d times and closed %d times, want once each", name, b.flushes, b.closes)
			}
		}
	})
}

// Without a fallback a message without a branch is invalid, and says why.
func TestRouteWithoutABranch(t *testing.T) {
	noop := strategies.Branches[*kgo.Record]{"a": strategies.Noop[*kgo.Record]()}
	header := func(pairs ...string) (hs []kgo.RecordHeader) {
		for i := 0; i < len(pairs); i += 2 {
			hs = append(hs, kgo.RecordHeader{Key: pairs[i], Value: []byte(pairs[i+1])})
		}
		return hs
	}
	for _, tt := range []struct {
		name   string
		route  arroyo.Strategy[*kgo.Record]
		good   *kgo.Record
		bad    *kgo.Record
		reason string
	}{
		{"Route", strategies.Route(byFirst, noop, strategies.Name("r")),
			&kgo.Record{Value: []byte("ax")}, &kgo.Record{Value: []byte("bx")}, `route "b" has no branch`},
		{"RouteByHeader", strategies.RouteByHeader("kind", noop, strategies.Name("r")),
			&kgo.Record{Headers: header("kind", "b", "kind", "a", "other", "b")}, &kgo.Record{Headers: header("kind", "a", "kind", "b")}, `header "kind" is "b", which has no branch`},
		{"RouteByHeader without it", strategies.RouteByHeader("kind", noop, strategies.Name("r")),
			&kgo.Record{Headers: header("kind", "a")}, &kgo.Record{Headers: header("other", "a")}, `there is no header "kind"`},
		{"RouteByKey", strategies.RouteByKey(noop, strategies.Name("r")),
			&kgo.Record{Key: []byte("a")}, &kgo.Record{Key: []byte("b")}, `key "b" has no branch`},
		{"RouteByKey without one", strategies.RouteByKey(noop, strategies.Name("r")),
			&kgo.Record{Key: []byte("a")}, &kgo.Record{}, `key "" has no branch`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := arroyo.NewRig(tt.route)
				r.Watch()
				tt.bad.Offset, tt.bad.Topic = 1, "events"
				r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), tt.good, tt.bad)
				if err := r.Settle(); err != nil {
					t.Fatal(err)
				}
				if err := r.Finish(); err != nil {
					t.Fatal(err)
				}
				vs := r.Verdicts()
				if len(vs) != 2 || vs[0].Kind == vs[1].Kind {
					t.Fatalf("verdicts %v, want one of each", vs)
				}
				for _, v := range vs {
					if v.Record == tt.good && v.Kind != arroyo.Acked {
						t.Errorf("the good record is %s", v.Kind)
					}
					if v.Record != tt.bad {
						continue
					}
					_, invalid := errors.AsType[*arroyo.InvalidError](v.Err)
					if want := "arroyo: step r at events/0 offset 1: invalid message: " + tt.reason; v.Kind != arroyo.Rejected || !invalid || v.Err.Error() != want {
						t.Errorf("the bad record is %s with %v, want it rejected with %s", v.Kind, v.Err, want)
					}
				}
			})
		})
	}
}

// A branch for the empty name takes records without the header, or the key.
func TestRouteOfNothing(t *testing.T) {
	for name, build := range map[string]func(strategies.Branches[*kgo.Record]) arroyo.Strategy[*kgo.Record]{
		"header": func(b strategies.Branches[*kgo.Record]) arroyo.Strategy[*kgo.Record] {
			return strategies.RouteByHeader("k", b)
		},
		"key": func(b strategies.Branches[*kgo.Record]) arroyo.Strategy[*kgo.Record] { return strategies.RouteByKey(b) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var none, rest branchStep
				r := arroyo.NewRig(build(strategies.Branches[*kgo.Record]{"": &none, strategies.Fallback: &rest}))
				r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Value: []byte("v")})
				if err := r.Settle(); err != nil {
					t.Fatal(err)
				}
				if err := r.Finish(); err != nil {
					t.Fatal(err)
				}
				if len(none.got.all()) != 1 || len(rest.got.all()) != 0 {
					t.Errorf("the empty branch got %v and the fallback %v", none.got.all(), rest.got.all())
				}
			})
		})
	}
}

// Steps are called by their branch, also in what a timer does.
func TestRouteNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, end := range map[string]arroyo.Strategy[*kgo.Record]{
			"step route/a/insert at events/0 offset 0: bad": strategies.ForEach(func(context.Context, records) error {
				return errors.New("bad")
			}, strategies.Name("insert")),
			"step route/a/write at events/0 offset 0: bad": strategies.Batch(10, time.Second, strategies.ForEach(func(context.Context, arroyo.BatchOf[*kgo.Record]) error {
				return errors.New("bad")
			}, strategies.Name("write"))),
			"step route/a/deep/x/put at events/0 offset 0: bad": strategies.Route(func(records) string { return "x" }, strategies.Branches[*kgo.Record]{
				"x": strategies.Queue(1, strategies.ForEachBatch(10, time.Second, func(context.Context, []records) error { return errors.New("bad") }, strategies.Name("put"))),
			}, strategies.Name("deep")),
		} {
			r := arroyo.NewRig(strategies.Route(byFirst, strategies.Branches[*kgo.Record]{
				"a": end,
				"b": strategies.Noop[*kgo.Record](),
				"c": strategies.Noop[*kgo.Record](), // without state, so it may be twice
			}, strategies.Name("route")))
			r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Topic: "events", Value: []byte("a")})
			<-r.Done()
			if got := fmt.Sprint(r.Err()); got != "arroyo: "+want {
				t.Errorf("the run ended with %q, want %q", got, want)
			}
		}
	})
}

// A panic of the function is located.
func TestRoutePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := arroyo.NewRig(strategies.Route(byFirst, strategies.Branches[*kgo.Record]{"a": strategies.Noop[*kgo.Record]()}, strategies.Name("route")))
		r.Feed(r.Assign(arroyo.Partition{Topic: "events"}), &kgo.Record{Topic: "events", Value: []byte("a")}, &kgo.Record{Topic: "events", Offset: 1})
		<-r.Done()
		at, ok := errors.AsType[*arroyo.StepError](r.Err())
		if _, panicked := errors.AsType[*arroyo.PanicError](r.Err()); !ok || !panicked || at.Step != "route" || at.Offset != 1 {
			t.Errorf("the run ended with %v, want a panic in route at offset 1", r.Err())
		}
	})
}

// All branches are closed, each once, also if some fail; all errors come back.
func TestRouteClosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		a := &branchStep{onClose: func() error { return first }}
		b := &branchStep{onClose: func() error { panic(second) }}
		c := &branchStep{}
		r := arroyo.NewRig(strategies.Route(byFirst, strategies.Branches[*kgo.Record]{"a": a, "b": b, "c": c}))
		err := r.Finish()
		if !errors.Is(err, first) || !errors.Is(err, second) {
			t.Errorf("the run ended with %v, want both errors", err)
		}
		if panicked, ok := errors.AsType[*arroyo.PanicError](err); !ok || !strings.Contains(string(panicked.Stack), "route_test.go") {
			t.Errorf("the panic is not in %v with its stack", err)
		}
		if a.closes != 1 || b.closes != 1 || c.closes != 1 {
			t.Errorf("closed %d, %d and %d times, want once each", a.closes, b.closes, c.closes)
		}
	})
}

// A Queue gives a branch its own pace: the others go on while it hangs, and
// what of them is drained gets its flush.
func TestRouteWithQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var written list[string]
		r := arroyo.NewRig(strategies.Route(byFirst, strategies.Branches[*kgo.Record]{
			"s": strategies.Queue(3, strategies.ForEach(func(context.Context, records) error { <-release; return nil })),
			"f": strategies.ForEachBatch(100, time.Hour, func(_ context.Context, rows []records) error {
				for _, row := range rows {
					written.add(value(row))
				}
				return nil
			}),
		}))
		p := &pipe{Rig: r, t: t, offsets: make(map[arroyo.Epoch]int64)}
		a, b := p.assign(0), p.assign(1)
		p.feed(a, "f1")
		synctest.Wait()
		p.feed(b, "s1")
		synctest.Wait()
		p.feed(a, "f2")
		synctest.Wait()
		for range 20 { // fills the queue, so that Submit blocks
			p.feed(b, "s2")
			synctest.Wait()
		}
		p.Drain(a)
		synctest.Wait()
		if got := written.all(); !slices.Equal(got, []string{"f1", "f2"}) || p.Unsettled(a) != 0 {
			t.Errorf("while the slow branch hangs, the fast one wrote %q and %d are unsettled", got, p.Unsettled(a))
		}
		close(release)
		if err := p.Settle(); err != nil {
			t.Fatal(err)
		}
		p.finish()
	})
}

// Branches may have types of their own, in a real run.
func TestRouteToTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var orders list[order]
		var texts list[string]
		b := newBench(t, 2, strategies.RouteByHeader("type", strategies.Branches[*kgo.Record]{
			"order":             strategies.RunTask(strategies.JSON[order], into(&orders)),
			strategies.Fallback: strategies.Queue(10, strategies.RunTask(text, into(&texts))),
		}))
		b.broker.ProduceRecords(
			&kgo.Record{Topic: "events", Partition: 0, Value: []byte(`{"id":"a","amount":3}`), Headers: []kgo.RecordHeader{{Key: "type", Value: []byte("order")}}},
			&kgo.Record{Topic: "events", Partition: 1, Value: []byte("hello")},
		)
		b.settle(2)
		b.stopsWithin(time.Second)
		if got := orders.all(); len(got) != 1 || got[0] != (order{"a", 3}) {
			t.Errorf("orders %v", got)
		}
		if got := texts.all(); len(got) != 1 || got[0] != "hello" {
			t.Errorf("texts %v", got)
		}
	})
}

func TestConformanceOfRoute(t *testing.T) {
	strategytest.Conformance(t, func(arroyo.Strategy[int]) arroyo.Strategy[int] {
		work := func(ctx context.Context, m arroyo.Message[int]) error { return strategytest.Work(ctx, m) }
		return strategies.Route(func(m arroyo.Message[int]) string { return fmt.Sprint(m.Payload % 4) }, strategies.Branches[int]{
			"0":                 strategies.ForEachBatch(10, longWait, func(context.Context, []arroyo.Message[int]) error { return nil }),
			"1":                 strategies.Queue(5, strategies.ForEach(work)),
			"2":                 strategies.RunTaskInParallel(3, slowSquare, strategies.Noop[int]()),
			strategies.Fallback: strategies.Noop[int](),
		})
	}, number, strategytest.Ends())
}

func TestRouteConstructorsPanic(t *testing.T) {
	noop := strategies.Noop[*kgo.Record]()
	one := strategies.ForEach(func(context.Context, records) error { return nil })
	type branches = strategies.Branches[*kgo.Record]
	for want, build := range map[string]func(){
		"Route: the function is nil":                        func() { strategies.Route(nil, branches{"a": noop}) },
		"Route: there are no branches":                      func() { strategies.Route(byFirst, branches{}) },
		"RouteByKey: there are no branches":                 func() { strategies.RouteByKey[int](nil) },
		`RouteByHeader: branch "a" is nil`:                  func() { strategies.RouteByHeader("h", branches{"a": nil}) },
		`Route: branches "a" and "b" are the same strategy`: func() { strategies.Route(byFirst, branches{"a": one, "b": one}) },
		"Route: it takes neither Retry nor Timeout":         func() { strategies.Route(byFirst, branches{"a": noop}, strategies.Timeout(1)) },
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
					t.Errorf("panicked with %q, want %q in it", v, want)
				}
			}()
			build()
		})
	}
}
