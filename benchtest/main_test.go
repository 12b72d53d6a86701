package benchtest

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes a second process of this binary the broker.
func TestMain(m *testing.M) {
	if n := os.Getenv(brokerEnv); n != "" {
		if err := serveBroker(n, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "benchtest: the broker process:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
