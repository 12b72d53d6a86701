package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// brokerEnv makes a program a broker; its value is the layout of its topic.
const brokerEnv = "ARROYO_BENCHTEST_BROKER"

// ServeIfBroker makes a second process of this program the broker. It returns
// if this is the first.
func ServeIfBroker() {
	of := os.Getenv(brokerEnv)
	if of == "" {
		return
	}
	if err := serveBroker(of, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchtest: the broker process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// StartBroker starts a broker in a process of its own, whose topic has records
// numbered from 0. It has to be stopped; it also ends with this process.
func StartBroker(l Layout) (s Source, stop func() error, err error) {
	l = l.withDefaults()
	exe, err := os.Executable()
	if err != nil {
		return s, nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), brokerEnv+"="+l.String())
	cmd.Stderr = os.Stderr
	// The process ends when its standard input does, and so also if this
	// process is killed.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return s, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return s, nil, err
	}
	if err := cmd.Start(); err != nil {
		return s, nil, fmt.Errorf("the broker process does not start: %w", err)
	}
	stop = func() error {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("the broker process failed: %w", err)
		}
		return nil
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return s, nil, fmt.Errorf("the broker process ended before it was ready, its standard error says why: %w (%w)", err, stop())
	}
	s = Source{Address: strings.TrimSpace(line), Layout: l}
	if l.Rate > 0 {
		s.begin = func() { io.WriteString(stdin, "go\n") }
	}
	return s, stop, nil
}

// serveBroker runs a broker until stdin ends. It writes its address once the
// topic is filled.
func serveBroker(of string, stdin io.Reader, stdout io.Writer) error {
	l, err := parseLayout(of)
	if err != nil {
		return err
	}
	opts := []kfake.Opt{kfake.NumBrokers(max(1, l.Brokers)), kfake.SeedTopics(int32(l.Partitions), Topic, Out, Dead)}
	if l.Rate > 0 {
		// A log is a slice for each segment: what the slowest records waited for
		// would be that it doubles.
		opts = append(opts, kfake.BrokerConfigs(map[string]string{"log.segment.bytes": "1048576"}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	address := cluster.ListenAddrs()[0]
	if l.Rate == 0 {
		if err := Fill(context.Background(), address, l); err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
	}
	fmt.Fprintln(stdout, address)
	in := bufio.NewReader(stdin)
	if l.Rate > 0 {
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

func newProducer(address string, l Layout, opts ...kgo.Opt) (*kgo.Client, error) {
	codec, err := l.codec()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(opts,
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codec),
	)...)
}

// Fill produces a layout's records, numbered from 0, in batches, one partition
// after the other.
func Fill(ctx context.Context, address string, l Layout) error {
	l = l.withDefaults()
	client, err := newProducer(address, l)
	if err != nil {
		return err
	}
	defer client.Close()
	for from := 0; from < l.Records; from += l.Batch {
		batch := make([]*kgo.Record, min(l.Batch, l.Records-from))
		for i := range batch {
			batch[i] = l.record(from + i)
		}
		if err := client.ProduceSync(ctx, batch...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// trickle produces what Fill does, at a steady rate.
func trickle(address string, l Layout) error {
	client, err := newProducer(address, l, kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer client.Close()
	const tick = time.Millisecond
	began := time.Now()
	for from := 0; from < l.Records; {
		time.Sleep(tick)
		for due := int(time.Since(began).Seconds() * float64(l.Rate)); from < min(due, l.Records); from++ {
			r := l.record(from)
			stamp(r.Value)
			client.Produce(context.Background(), r, nil)
		}
	}
	return client.Flush(context.Background())
}
