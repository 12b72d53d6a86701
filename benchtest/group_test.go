package benchtest

import (
	"fmt"
	"sync/atomic"
	"testing"
)

var groups atomic.Int64

// group returns the beginning of group names that nobody used before.
func group(tb testing.TB) string { return fmt.Sprintf("%s-%d", tb.Name(), groups.Add(1)) }
