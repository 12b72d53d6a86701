package realkafka

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one running Java.
type process struct {
	cmd     *exec.Cmd
	started chan error    // receives the result of starting it
	exited  chan struct{} // is closed when it is gone
}

// startProcess starts Java with both its outputs appended to the file log.
func startProcess(java string, args []string, log *os.File) (*process, error) {
	p := &process{
		cmd:     exec.Command(java, args...),
		started: make(chan error, 1),
		exited:  make(chan struct{}),
	}
	// Files are given to the process as they are: no goroutines to copy.
	p.cmd.Stdout = log
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = dieWithParent()
	go p.run()
	if err := <-p.started; err != nil {
		return nil, fmt.Errorf("start %s: %w", java, err)
	}
	return p, nil
}

// run starts the process and waits for its end, both on one thread that nothing
// else runs on: Linux kills the process when the thread that started it ends,
// not only when this program does.
func (p *process) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.exited)
	err := p.cmd.Start()
	p.started <- err
	if err != nil {
		return
	}
	// How it ended is in p.cmd.ProcessState.
	_ = p.cmd.Wait()
}

// stop ends the process in order.
func (p *process) stop(timeout time.Duration) error {
	// An error means that it is gone, or that the system knows no signals.
	if p.cmd.Process.Signal(syscall.SIGTERM) != nil {
		p.kill()
		return nil
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(timeout):
		p.kill()
		return fmt.Errorf("the broker was told to stop and had not after %s, it was killed", timeout)
	}
}

// kill ends the process at once and returns when it is gone.
func (p *process) kill() {
	// The only error is that it is gone already.
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// alive tells whether the process has not ended.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
