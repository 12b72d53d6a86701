package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/arroyo-go/arroyo/internal/tcpproxy"
)

// member is a child as the parent sees it.
type member struct {
	name    string
	proxy   *tcpproxy.Proxy
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan figures
	gone    chan struct{}
	told    atomic.Bool // to end
	last    figures     // set before gone is closed
}

func startMember(broker string, o order) (*member, error) {
	proxy, err := tcpproxy.Listen(broker)
	if err != nil {
		return nil, err
	}
	m := &member{name: o.Name, proxy: proxy, answers: make(chan figures, 1), gone: make(chan struct{})}
	if err := m.start(o); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", o.Name, err), proxy.Close())
	}
	return m, nil
}

func (m *member) start(o order) error {
	o.Broker = m.proxy.Addr()
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	m.cmd = exec.Command(self)
	m.cmd.Env = append(os.Environ(), childEnv+"="+string(line))
	m.cmd.Stderr = os.Stderr
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	go m.listen(stdout)
	return nil
}

func (m *member) listen(stdout io.Reader) {
	defer close(m.gone)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var f figures
		switch {
		case json.Unmarshal(lines.Bytes(), &f) != nil: // of one that was killed
		case f.Ended:
			m.last = f
		default:
			m.answers <- f
		}
	}
	_ = m.cmd.Wait() // how it ended it has said, or it was killed
}

// ask returns the figures of now.
func (m *member) ask() (figures, error) {
	if _, err := m.stdin.Write([]byte("\n")); err != nil {
		return figures{}, fmt.Errorf("%s ended: %s", m.name, m.last.Err)
	}
	select {
	case f := <-m.answers:
		return f, nil
	case <-m.gone:
		return figures{}, fmt.Errorf("%s ended: %s", m.name, m.last.Err)
	case <-time.After(30 * time.Second):
		return figures{}, fmt.Errorf("%s does not answer", m.name)
	}
}

// kill ends the member as SIGKILL does.
func (m *member) kill() error {
	m.told.Store(true)
	_ = m.cmd.Process.Kill() // it may be gone already
	<-m.gone
	return m.proxy.Close()
}

// leave tells the member to end in good order and returns an error if it does
// not.
func (m *member) leave() error {
	m.told.Store(true)
	_ = m.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-m.gone:
		if m.last.Err != "" || !m.last.Ended {
			err = fmt.Errorf("%s was told to leave and ended with %q", m.name, m.last.Err)
		}
	case <-time.After(15 * time.Second):
		err = fmt.Errorf("%s was told to leave and has not", m.name)
		_ = m.cmd.Process.Kill()
		<-m.gone
	}
	return errors.Join(err, m.proxy.Close())
}

// accident returns an error if it ended and nobody told it to.
func (m *member) accident() error {
	select {
	case <-m.gone:
		if !m.told.Load() {
			return fmt.Errorf("%s ended by itself: %s", m.name, m.last.Err)
		}
	default:
	}
	return nil
}
