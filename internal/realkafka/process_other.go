//go:build !linux

package realkafka

import "syscall"

// dieWithParent has nothing to offer here: a broker outlives a test binary that
// panics.
func dieWithParent() *syscall.SysProcAttr {
	return nil
}
