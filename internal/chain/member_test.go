package chain

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/arroyo-go/arroyo/internal/tcpproxy"
)

// member is a child as the parent sees it.
type member struct {
	order
	proxy *tcpproxy.Proxy
	cmd   *exec.Cmd
	stdin io.Closer
	gone  chan struct{} // closed when it has ended and all that it told was read

	mu     sync.Mutex
	news   []news
	told   bool // to end
	killed bool
}

// startMember starts a child whose network is its own.
func startMember(t *testing.T, broker string, o order) *member {
	t.Helper()
	proxy, err := tcpproxy.Listen(broker)
	if err != nil {
		t.Fatal(err)
	}
	o.Broker = proxy.Addr()
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(line))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := &member{order: o, proxy: proxy, cmd: cmd, stdin: stdin, gone: make(chan struct{})}
	go m.listen(stdout)
	t.Cleanup(func() {
		m.kill()
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *member) listen(stdout io.Reader) {
	defer close(m.gone)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var n news
		if json.Unmarshal(lines.Bytes(), &n) != nil {
			continue // the last line of one that was killed
		}
		m.mu.Lock()
		m.news = append(m.news, n)
		m.mu.Unlock()
	}
	_ = m.cmd.Wait() // how it ended it has told, or it was killed
}

// kill ends the process as SIGKILL does, and waits until it is gone.
func (m *member) kill() {
	m.mu.Lock()
	m.told, m.killed = true, true
	m.mu.Unlock()
	_ = m.cmd.Process.Kill() // it may be gone already
	<-m.gone
}

// leave tells the process to end in good order.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	m.told = true
	m.mu.Unlock()
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Errorf("%s cannot be told to leave: %v", m.Life, err)
	}
}

// left waits for the end of one that was told to leave.
func (m *member) left(t *testing.T) {
	t.Helper()
	select {
	case <-m.gone:
	case <-time.After(drainTimeout + 5*time.Second):
		t.Errorf("%s was told to leave and has not", m.Life)
		m.kill()
	}
}

func (m *member) isGone() bool {
	select {
	case <-m.gone:
		return true
	default:
		return false
	}
}

// accident returns how a member ended that nobody told to end, or that did not
// end in good order though it was told to.
func (m *member) accident() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ended, how := false, ""
	for _, n := range m.news {
		if n.Kind == newsEnded {
			ended, how = true, n.Err
		}
	}
	switch {
	case ended && how != "":
		return how
	case ended && !m.told:
		return "nobody told it to end"
	case !ended && !m.killed && m.isGone():
		return "it ended without a word"
	}
	return ""
}
