package strategytest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo"
)

// locking holds a mutex, which its timer needs, over the next step.
type locking struct {
	forward
	mu sync.Mutex
	n  int
}

func (l *locking) Submit(ctx context.Context, msgs messages) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	time.AfterFunc(time.Second/2, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n++
	})
	return l.Next.Submit(ctx, msgs)
}

const asChild = "STRATEGYTEST_LOCKING"

// Whoever holds a mutex over the next step stops virtual time, and would let
// the test hang. It ends with a panic that says so; so this test is another
// process.
func TestMutexOverTheNextStep(t *testing.T) {
	if os.Getenv(asChild) != "" {
		lookEvery = 20 * time.Millisecond
		Conformance(t, func(next strategy) strategy {
			return &locking{forward: arroyo.ForwardTo(next)}
		}, number)
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutexOverTheNextStep$", "-test.timeout=60s")
	child.Env = append(os.Environ(), asChild+"=1")
	out, err := child.CombinedOutput()
	if err == nil {
		t.Error("the test of a strategy that holds a mutex over the next step passes")
	}
	for _, want := range []string{"virtual time stands still", "(*locking).Submit.func1"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}
