package strategytest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a reporter that keeps what it is told.
type recorder struct {
	mu   sync.Mutex
	said []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func number(i int) int { return i }

// expect runs a check and looks for something in what it says; for "" that it
// says nothing.
func expect(t *testing.T, build func(strategy) strategy, check, says string, opts ...Option) {
	t.Helper()
	for _, c := range newSuite(build, number, opts).checks() {
		if c.name != check {
			continue
		}
		r := &recorder{}
		synctest.Test(t, func(t *testing.T) { c.run(r) })
		said := strings.Join(r.said, "\n")
		if !strings.Contains(said, says) || says == "" && said != "" {
			t.Errorf("%q should say %q, and said\n%s", check, says, said)
		}
		return
	}
	t.Errorf("there is no check %q", check)
}

// Each way to break the contract is found by the check that is for it.
func TestConformanceFindsWhatIsBroken(t *testing.T) {
	for _, b := range allBroken {
		t.Run(b.what, func(t *testing.T) { expect(t, b.build, b.check, b.says, Capacity(2000)) })
	}
}

// The strategies that the broken ones are made of pass as they are.
func TestConformanceOfWhatIsWhole(t *testing.T) {
	t.Run("forward", func(t *testing.T) {
		Conformance(t, func(next strategy) strategy {
			return struct{ forward }{forward{Next: next}}
		}, number)
	})
	t.Run("holding", func(t *testing.T) { Conformance(t, held(func(*holding) {}), number, Capacity(1)) })
	t.Run("queue", func(t *testing.T) { Conformance(t, queue(func(*queued) {}), number) })
	t.Run("workers", func(t *testing.T) { Conformance(t, working(func(*worker) {}), number, Unordered()) })
}
