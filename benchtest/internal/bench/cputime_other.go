//go:build !unix

package bench

import "time"

// cpuTime is not known here: what is computed from it is zero.
func cpuTime() time.Duration { return 0 }
