package benchtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// brokerEnv makes the test binary a broker; its value is how many
	// records its topic has.
	brokerEnv = "ARROYO_BENCHTEST_BROKER"

	topic      = "events"
	partitions = 8
	valueSize  = 100  // bytes
	batchSize  = 8000 // records: about the mebibyte that a batch may have
)

// startBroker starts a broker in a process of its own, whose topic has records
// numbered from 0, and returns its address. It ends with the test.
func startBroker(tb testing.TB, records int) (address string) {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), brokerEnv+"="+strconv.Itoa(records))
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
	return strings.TrimSpace(line)
}

// serveBroker runs a broker until stdin ends. It writes its address once the
// topic is filled.
func serveBroker(records string, stdin io.Reader, stdout io.Writer) error {
	n, err := strconv.Atoi(records)
	if err != nil {
		return fmt.Errorf("%s is not a number of records: %w", brokerEnv, err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	if err != nil {
		return err
	}
	defer cluster.Close()
	address := cluster.ListenAddrs()[0]
	if err := fill(address, n); err != nil {
		return fmt.Errorf("fill the topic: %w", err)
	}
	fmt.Fprintln(stdout, address)
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// fill produces records numbered from 0 in batches, one partition after the
// other.
func fill(address string, records int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for from := 0; from < records; from += batchSize {
		batch := make([]*kgo.Record, min(batchSize, records-from))
		for i := range batch {
			value := make([]byte, valueSize)
			binary.BigEndian.PutUint64(value, uint64(from+i))
			batch[i] = &kgo.Record{Value: value, Partition: int32(from / batchSize % partitions)}
		}
		if err := client.ProduceSync(context.Background(), batch...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}
