package integration

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// A test binary with childEnv set is a member of a group in a process of its
// own, which can be killed. It writes a line for each record that it has
// processed.
const childEnv = "ARROYO_TEST_CHILD"

// childLogEnv is the topic of the commit log that the child writes; empty: none.
const childLogEnv = "ARROYO_TEST_COMMIT_LOG"

// child runs in the child. The variable holds protocol, group, topic, brokers.
func child() int {
	args := strings.Fields(os.Getenv(childEnv))
	out := bufio.NewWriter(os.Stdout)
	var popts []arroyo.ProcessorOption
	if topic := os.Getenv(childLogEnv); topic != "" {
		popts = append(popts, arroyo.CommitLog(topic))
	}
	processor, err := newProcessor(args[3:], args[1], args[2], func(r record) {
		fmt.Fprintln(out, r.partition, r.offset)
		out.Flush()
	}, append([]kgo.Opt{kgo.SessionTimeout(childSession)}, protocols[args[0]]...), popts...)
	if err == nil {
		err = processor.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "child:", err)
	return 1
}

// process is a child as the parent sees it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when all that it wrote was read
	kill func()        // SIGKILL; waits until it is gone
}

func (c *cluster) startChild(t *testing.T, protocol, name string, l *ledger, env ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(append([]string{protocol, c.group, c.topic}, c.kafka.Brokers()...), " "))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var r record
			if n, _ := fmt.Sscan(lines.Text(), &r.partition, &r.offset); n == 2 {
				l.add(name, r)
			}
		}
	}()
	p.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // SIGKILL
		<-p.done
		_ = cmd.Wait()
	})
	t.Cleanup(p.kill)
	return p
}
