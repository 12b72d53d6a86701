package benchtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// brokerEnv makes the test binary a broker; its value is the layout of
	// its topic.
	brokerEnv = "ARROYO_BENCHTEST_BROKER"

	topic     = "events"
	valueSize = 100 // bytes
)

// layout is what the topic has.
type layout struct {
	records    int
	partitions int
	batch      int // records of a batch
	rate       int // records a second that it gets from go on; 0: it has all of them
}

// large has eight partitions, and batches of about the mebibyte that one may
// have.
func large(records int) layout { return layout{records: records, partitions: 8, batch: 8000} }

func (l layout) String() string {
	return fmt.Sprintf("%d/%d/%d/%d", l.records, l.partitions, l.batch, l.rate)
}

func parseLayout(s string) (l layout, err error) {
	if _, err := fmt.Sscanf(s, "%d/%d/%d/%d", &l.records, &l.partitions, &l.batch, &l.rate); err != nil {
		return l, fmt.Errorf("%s is not the layout of a topic: %w", brokerEnv, err)
	}
	return l, nil
}

// startBroker starts a broker in a process of its own, whose topic has records
// numbered from 0. It ends with the test.
func startBroker(tb testing.TB, l layout) source {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), brokerEnv+"="+l.String())
	cmd.Stderr = os.Stderr
	// The process ends when its standard input does, and so also if this
	// process is killed.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("the broker process does not start: %v", err)
	}
	tb.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the broker process failed: %v", err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("the broker process ended before it was ready (its standard error says why): %v", err)
	}
	s := source{address: strings.TrimSpace(line), records: l.records}
	if l.rate > 0 {
		s.begin = func() { io.WriteString(stdin, "go\n") }
	}
	return s
}

// serveBroker runs a broker until stdin ends. It writes its address once the
// topic is filled.
func serveBroker(of string, stdin io.Reader, stdout io.Writer) error {
	l, err := parseLayout(of)
	if err != nil {
		return err
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(l.partitions), topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	address := cluster.ListenAddrs()[0]
	if l.rate == 0 {
		if err := fill(address, l); err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
	}
	fmt.Fprintln(stdout, address)
	in := bufio.NewReader(stdin)
	if l.rate > 0 {
		if _, err := in.ReadString('\n'); err != nil {
			return nil // not wanted any more
		}
		go func() {
			if err := trickle(address, l); err != nil {
				fmt.Fprintln(os.Stderr, "benchtest: the broker process: produce:", err)
				os.Exit(1)
			}
		}()
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// trickle produces what fill does, at a steady rate.
func trickle(address string, l layout) error {
	client, err := producer(address)
	if err != nil {
		return err
	}
	defer client.Close()
	const tick = 10 * time.Millisecond
	began := time.Now()
	for from := 0; from < l.records; {
		time.Sleep(tick)
		for due := int(time.Since(began).Seconds() * float64(l.rate)); from < min(due, l.records); from++ {
			client.Produce(context.Background(), record(l, from), nil)
		}
	}
	return client.Flush(context.Background())
}

func record(l layout, n int) *kgo.Record {
	value := make([]byte, valueSize)
	binary.BigEndian.PutUint64(value, uint64(n))
	return &kgo.Record{Value: value, Partition: int32(n / l.batch % l.partitions)}
}

func producer(address string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
}

// fill produces records numbered from 0 in batches, one partition after the
// other.
func fill(address string, l layout) error {
	client, err := producer(address)
	if err != nil {
		return err
	}
	defer client.Close()
	for from := 0; from < l.records; from += l.batch {
		batch := make([]*kgo.Record, min(l.batch, l.records-from))
		for i := range batch {
			batch[i] = record(l, from+i)
		}
		if err := client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}
