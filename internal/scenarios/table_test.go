package scenarios

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

// scenario is written once; its outcome is the same wherever it runs.
type scenario struct {
	name       string // with its number in scenarios.md, if it has one
	partitions int    // defaults to 2
	play       func(*stage)
	want       outcome

	under   []string // protocols; defaults to all
	memOnly string   // why it can't be had on the real Kafka; "" if it can
	// realUnder are the protocols on the real Kafka, where that are fewer.
	realUnder []string
}

var table = slices.Concat(membership, drains, failures, failing, settlements, logs, starts, loops)

func TestMemkafka(t *testing.T) {
	for _, sc := range table {
		for _, protocol := range sc.protocols(false) {
			t.Run(sc.name+"/"+protocol, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { sc.run(t, newMem(t), protocol) })
			})
		}
	}
}

func TestRealKafka(t *testing.T) {
	kafka := realkafka.Start(t)
	const brokers = "ARROYO_TEST_BROKERS"
	foreign := os.Getenv(brokers) != ""
	if foreign {
		t.Logf("not under KIP-848: its session timeout is the broker's, and that of %s is not ours", brokers)
	}
	for _, sc := range table {
		if sc.memOnly != "" {
			continue
		}
		for _, protocol := range sc.protocols(true) {
			if foreign && protocol == "kip848" {
				continue
			}
			t.Run(sc.name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				sc.run(t, newGenuine(t, kafka, protocol), protocol)
			})
		}
	}
}

// The table is what it is said to be.
func TestTable(t *testing.T) {
	names := make(map[string]bool)
	both := 0
	for _, sc := range table {
		if names[sc.name] {
			t.Errorf("%s is there twice", sc.name)
		}
		names[sc.name] = true
		if sc.memOnly == "" {
			both++
		} else {
			t.Logf("only on memkafka: %s: %s", sc.name, sc.memOnly)
		}
	}
	// What went wrong for others has a scenario here, by its number.
	for _, n := range []int{1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 21, 22, 24, 26, 27, 28, 29, 30} {
		number := fmt.Sprintf("S%d ", n)
		if !slices.ContainsFunc(table, func(sc scenario) bool { return strings.HasPrefix(sc.name, number) }) {
			t.Errorf("there is no scenario %s", number)
		}
	}
	t.Logf("%d scenarios, %d of them on the real Kafka as well", len(table), both)
	if both < 25 {
		t.Errorf("%d scenarios run on both, want at least 25", both)
	}
}

func (sc scenario) protocols(real bool) []string {
	if real && sc.realUnder != nil {
		return sc.realUnder
	}
	if sc.under != nil {
		return sc.under
	}
	return slices.Sorted(maps.Keys(protocols))
}

func (sc scenario) run(t *testing.T, e env, protocol string) {
	s := &stage{
		t: t, env: e, timing: e.timing(),
		protocol: protocol, opts: protocols[protocol],
		partitions: max(sc.partitions, 1),
	}
	if sc.partitions == 0 {
		s.partitions = 2
	}
	s.topic, s.group = e.createTopic(t, s.partitions), e.newGroup(t)
	sc.play(s)
	if diff := cmp.Diff(sc.want, s.outcome()); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}
