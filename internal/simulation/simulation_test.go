package simulation

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

var (
	seeds = flag.Int("seeds", 40, "how many seeds to run")
	from  = flag.Uint64("from", 1, "the first of them; 0: a random one")
	facts = flag.String("facts", "", "a `folder` for all that was seen of a seed that fails")
	seed  = flag.Uint64("seed", 0, "run this one only, and print its schedule with -v")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSimulation(t *testing.T) {
	first, n := *from, uint64(*seeds)
	switch {
	case *seed != 0:
		first, n = *seed, 1
	case first == 0:
		first = rand.Uint64N(1 << 40)
	}
	t.Logf("seeds %d to %d", first, first+n-1)
	// A few at a time: each looks through the stacks of all goroutines at its
	// end, and those of tests that wait for their turn are among them.
	const together = 200
	for ; n > 0; n -= min(n, together) {
		t.Run("together", func(t *testing.T) {
			for s := first; s < first+min(n, together); s++ {
				t.Run(fmt.Sprint(s), func(t *testing.T) {
					t.Parallel()
					simulate(t, s)
				})
			}
		})
		first += together
	}
}

func simulate(t *testing.T, s uint64) {
	synctest.Test(t, func(t *testing.T) {
		p := draw(s)
		w := newWorld(t, p)
		w.run()
		if *seed != 0 && testing.Verbose() {
			t.Logf("\n%s", p)
		}
		if len(w.violations) == 0 {
			return
		}
		const most = 8
		shown := w.violations[:min(most, len(w.violations))]
		t.Errorf("%d violations; replay with -seed %d -v\n    %s\n%s", len(w.violations), s, strings.Join(shown, "\n    "), p)
		if *facts != "" {
			var all strings.Builder
			for _, f := range w.history.facts {
				fmt.Fprintln(&all, f)
			}
			if err := os.WriteFile(filepath.Join(*facts, fmt.Sprint(s)), []byte(all.String()), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
}
