package strategytest_test

import (
	"context"
	"flag"
	"fmt"
	"testing"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies/strategytest"
)

// sampled hands on every nth message of each partition.
type sampled struct {
	arroyo.Forward[string]
	n    int
	seen map[arroyo.Epoch]int
}

func newSampled(n int, next arroyo.Strategy[string]) *sampled {
	return &sampled{arroyo.ForwardTo(next), n, make(map[arroyo.Epoch]int)}
}

func (s *sampled) Submit(ctx context.Context, msgs []arroyo.Message[string]) error {
	var kept []arroyo.Message[string]
	for _, m := range msgs {
		if s.seen[m.Epoch()]%s.n == 0 {
			kept = append(kept, m)
		} else {
			m.Ack()
		}
		s.seen[m.Epoch()]++
	}
	if len(kept) == 0 {
		return nil
	}
	return s.Next.Submit(ctx, kept)
}

// The test of a strategy of one's own is this call.
func ExampleConformance() {
	testSampled := func(t *testing.T) { // func TestSampled(t *testing.T) {
		strategytest.Conformance(t,
			func(next arroyo.Strategy[string]) arroyo.Strategy[string] { return newSampled(3, next) },
			func(i int) string { return fmt.Sprint("message ", i) })
	}

	fmt.Println("sampled keeps the contract:", passes(testSampled))
	// Output: sampled keeps the contract: true
}

// passes runs a test within an example.
func passes(test func(*testing.T)) bool {
	// Without -v, which would print among the example's output.
	verbose := flag.Lookup("test.v").Value
	was := fmt.Sprint(verbose.(flag.Getter).Get())
	verbose.Set("false")
	defer verbose.Set(was)
	all := func(pattern, name string) (bool, error) { return true, nil }
	return testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: test}})
}

func ExampleMessages() {
	t := &tb{} // in a test, the test's

	rows := strategytest.Messages(t, 3, -1, 5)
	err := insert(context.Background(), rows.All())

	fmt.Println("error:", err)
	for _, v := range rows.Verdicts() {
		fmt.Println(v.Message, v.Kind)
	}
	t.cleanup()
	// Output:
	// error: <nil>
	// 1 rejected
	// 0 acked
	// 2 acked
}
