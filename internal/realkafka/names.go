package realkafka

import (
	"crypto/rand"
	"regexp"
	"strings"
	"testing"
)

// notInNames are the characters that may not be in the name of a topic, and the
// two that Kafka warns of as they are the same in the names of its metrics.
var notInNames = regexp.MustCompile(`[^a-zA-Z0-9-]+`)

// newName returns a name that nobody has and that says which test made it.
func newName(tb testing.TB) string {
	test := notInNames.ReplaceAllString(tb.Name(), "-")
	const enough = 100 // Kafka allows 249
	test = test[:min(len(test), enough)]
	// Half of the 26 letters are enough, and easier to read in a log.
	return "arroyo-" + test + "-" + strings.ToLower(rand.Text()[:13])
}

// Group returns the name of a group that does not exist yet.
func (k *Kafka) Group(tb testing.TB) string {
	tb.Helper()
	return newName(tb)
}
