package realkafka

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	formatTimeout = 30 * time.Second
	stopTimeout   = 30 * time.Second
)

// broker is a Kafka that this program started: broker and controller in one
// process, with its data in a folder of its own.
type broker struct {
	inst  installation
	dir   string
	ports ports

	mu   sync.Mutex // held while proc changes
	proc *process
}

func (b *broker) configFile() string { return filepath.Join(b.dir, "server.properties") }
func (b *broker) log4jFile() string  { return filepath.Join(b.dir, "log4j2.properties") }
func (b *broker) logFile() string    { return filepath.Join(b.dir, "broker.log") }

// newBroker writes the files of a broker into a new folder and starts it.
func newBroker(ctx context.Context, inst installation, o Options) (*broker, error) {
	p, err := freePorts()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "arroyo-kafka-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the broker's data: %w", err)
	}
	b := &broker{inst: inst, dir: dir, ports: p}
	if err := b.prepare(ctx, o); err != nil {
		return nil, errors.Join(err, b.close())
	}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// prepare writes the configuration and formats the storage.
func (b *broker) prepare(ctx context.Context, o Options) error {
	config := brokerConfig(filepath.Join(b.dir, "data"), b.ports, o.Config)
	if err := os.WriteFile(b.configFile(), properties(config), 0o600); err != nil {
		return fmt.Errorf("write the broker's configuration: %w", err)
	}
	if err := os.WriteFile(b.log4jFile(), log4jConfig, 0o600); err != nil {
		return fmt.Errorf("write the broker's configuration of logging: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, formatTimeout)
	defer cancel()
	args := b.javaArgs("kafka.tools.StorageTool", "format", "--config", b.configFile(), "--cluster-id="+newClusterID())
	out, err := exec.CommandContext(ctx, b.inst.java, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("format the broker's storage: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// newClusterID returns a new id. A fixed one would let the clients of an ended
// broker take another one on the same port for it.
func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// javaArgs returns the arguments to run one of Kafka's main classes.
func (b *broker) javaArgs(class string, args ...string) []string {
	return append([]string{
		// A broker for tests lives for seconds: it is to start quickly and be
		// small, so neither the optimizing compiler nor a parallel collector.
		"-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true",
		"-Dlog4j2.configurationFile=" + b.log4jFile(),
		"-cp", filepath.Join(b.inst.libs, "*"),
		class,
	}, args...)
}

// start starts the process and waits until the broker serves.
func (b *broker) start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.startLocked(ctx)
}

func (b *broker) startLocked(ctx context.Context) error {
	log, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the broker's log: %w", err)
	}
	defer log.Close() // the process has it as well
	from := logSize(b.logFile())
	proc, err := startProcess(b.inst.java, b.javaArgs("kafka.Kafka", b.configFile()), log)
	if err != nil {
		return err
	}
	b.proc = proc
	if err := waitReady(ctx, []string{b.ports.broker}, proc.exited); err != nil {
		proc.kill()
		return b.explain(err, from)
	}
	return nil
}

// explain adds the end of the broker's log to an error.
func (b *broker) explain(err error, from int64) error {
	tail, logErr := logTail(b.logFile(), from)
	if logErr != nil {
		return errors.Join(err, logErr)
	}
	if portTaken(tail) {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return fmt.Errorf("%w\nthe end of its log:\n%s", err, tail)
}

// restart stops the broker in order and starts it with the same data and ports.
func (b *broker) restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.proc.stop(stopTimeout); err != nil {
		return b.explain(err, 0)
	}
	return b.startLocked(ctx)
}

// process returns the present process of the broker.
func (b *broker) process() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proc
}

// check returns an error when the broker has ended by itself.
func (b *broker) check() error {
	if b.process().alive() {
		return nil
	}
	return b.explain(errEnded, 0)
}

// close kills the process, as an orderly stop would only care for the data, and
// removes the data.
func (b *broker) close() error {
	if p := b.process(); p != nil {
		p.kill()
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return fmt.Errorf("remove the broker's data: %w", err)
	}
	return nil
}
