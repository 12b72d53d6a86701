//go:build linux

package realkafka

import "syscall"

// dieWithParent makes the broker end with this program however it ends: a panic
// in a test or the timeout of go test run no deferred function.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
