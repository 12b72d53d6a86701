package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// child is the command as a process of its own.
type child struct {
	cmd    *exec.Cmd
	addr   string
	stderr bytes.Buffer
}

func start(t *testing.T, bin string, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(bin, args...)}
	c.cmd.Stderr = &c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addr, ok := strings.CutPrefix(line, "ready ")
	if err != nil || !ok {
		_ = c.cmd.Wait()
		t.Fatalf("it printed %q, and to standard error %q: %v", line, &c.stderr, err)
	}
	c.addr = strings.TrimSpace(addr)
	return c
}

// stop returns the status that the command ends with.
func (c *child) stop(t *testing.T, signal os.Signal) int {
	t.Helper()
	if err := c.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	err := c.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(exit)
	}
	return c.cmd.ProcessState.ExitCode()
}

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "memkafka")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return bin
}

const lines = `{"topic": "events", "value": "text"}
{"topic": "events", "value": {"id": 1, "tags": ["a"]}, "headers": {"source": "ci", "a": ""}, "timestamp": "2024-01-02T03:04:05Z"}
{"topic": "events", "partition": 3, "key": "user-7", "value": null, "timestamp": 1704164645000}

{"topic": "table", "key": "user-7", "value": 12}
{"topic": "table", "key": {"id": 7}, "value": ""}
`

type record struct {
	Topic      string
	Partition  int32
	Key, Value string
}

func TestCommand(t *testing.T) {
	bin := build(t)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		c := start(t, bin, "-topic", "events:4", "-topic", "table:2", "-brokers", "2", "-records", file)
		client, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("events", "table"),
			kgo.DisableAutoCommit(), kgo.DefaultProduceTopic("events"))
		if err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), kgo.KeySliceRecord([]byte("k"), []byte("more"))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		var records []*kgo.Record
		for len(records) < 6 {
			fetches := client.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatal(err)
			}
			records = append(records, fetches.Records()...)
		}
		if err := client.CommitRecords(t.Context(), records...); err != nil {
			t.Error(err)
		}
		committed, err := kadm.NewClient(client).FetchOffsets(t.Context(), "g")
		if err != nil {
			t.Error(err)
		}
		var sum int64
		committed.Each(func(o kadm.OffsetResponse) { sum += o.At })
		if sum != 6 {
			t.Errorf("%d offsets are committed, not 6", sum)
		}
		client.Close()
		if status := c.stop(t, signal); status != 0 || c.stderr.Len() > 0 {
			t.Errorf("%v: it ended with status %d: %s", signal, status, &c.stderr)
		}

		var got []record
		for _, r := range records {
			if string(r.Value) != "more" {
				got = append(got, record{r.Topic, r.Partition, string(r.Key), string(r.Value)})
			}
			switch string(r.Value) {
			case `{"id":1,"tags":["a"]}`:
				if r.Key != nil || !r.Timestamp.Equal(time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)) {
					t.Errorf("record %+v", r)
				}
				want := []kgo.RecordHeader{{Key: "a", Value: []byte{}}, {Key: "source", Value: []byte("ci")}}
				if diff := cmp.Diff(want, r.Headers); diff != "" {
					t.Error(diff)
				}
			case "":
				if null := r.Topic == "events"; (r.Value == nil) != null {
					t.Errorf("record %+v", r)
				}
				if r.Topic == "events" && !r.Timestamp.Equal(time.UnixMilli(1704164645000)) {
					t.Errorf("record %+v", r)
				}
			}
		}
		slices.SortFunc(got, func(a, b record) int {
			return strings.Compare(a.Topic+a.Value, b.Topic+b.Value)
		})
		// Where keys go is what the Java client does: toPositive(murmur2(key)) % partitions.
		want := []record{
			{"events", 3, "user-7", ""}, {"events", 0, "", "text"}, {"events", 1, "", `{"id":1,"tags":["a"]}`},
			{"table", 1, `{"id":7}`, ""}, {"table", 0, "user-7", "12"},
		}
		slices.SortFunc(want, func(a, b record) int {
			return strings.Compare(a.Topic+a.Value, b.Topic+b.Value)
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// A port of one's own, and records from standard input.
func TestCommandPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()

	var out, complaint bytes.Buffer
	if status := run(t.Context(), []string{"-listen", addr}, nil, &out, &complaint); status != 1 {
		t.Errorf("a port that is taken: status %d", status)
	}
	if got := complaint.String(); !strings.HasPrefix(got, "memkafka: open to TCP: ") || !strings.Contains(got, "address already in use") {
		t.Errorf("a port that is taken: %q", got)
	}
	ln.Close()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	done := make(chan int)
	go func() {
		in := strings.NewReader(`{"topic": "events", "value": "a"}`)
		done <- run(ctx, []string{"-listen", addr, "-topic", "events:1", "-records", "-"}, in, write, io.Discard)
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil || line != "ready "+addr+"\n" {
		t.Errorf("it printed %q, %v", line, err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("events"))
	if err != nil {
		t.Fatal(err)
	}
	if got := client.PollFetches(t.Context()).NumRecords(); got != 1 {
		t.Errorf("%d records", got)
	}
	client.Close()
	cancel()
	if status := <-done; status != 0 {
		t.Errorf("status %d", status)
	}
}

// It can be stopped while it waits for records.
func TestCommandStopsWhileLoading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	done := make(chan int)
	go func() {
		done <- run(ctx, []string{"-topic", "events:1", "-records", "-"}, read, io.Discard, io.Discard)
	}()
	if _, err := io.WriteString(write, `{"topic": "events"}`); err != nil {
		t.Error(err)
	}
	cancel()
	if status := <-done; status != 0 {
		t.Errorf("status %d", status)
	}
	write.Close()
}

func TestCommandComplains(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		in     string
		status int
		want   string
	}{
		"help":               {[]string{"-h"}, "", 0, "fake Kafka"},
		"unknown flag":       {[]string{"-x"}, "", 2, "-x"},
		"argument":           {[]string{"events:4"}, "", 2, `unexpected argument "events:4"`},
		"topic":              {[]string{"-topic", "events"}, "", 2, "give name:partitions"},
		"topic twice":        {[]string{"-topic", "events:1", "-topic", "events:2"}, "", 2, "given already"},
		"topic name":         {[]string{"-topic", "a b:1"}, "", 1, `memkafka: option Topic: topic "a b"`},
		"topic partitions":   {[]string{"-topic", "events:0"}, "", 1, "with 0 partitions"},
		"brokers":            {[]string{"-brokers", "0"}, "", 1, "option Brokers"},
		"listen":             {[]string{"-listen", "9092"}, "", 2, "missing port"},
		"listen to all":      {[]string{"-listen", "0.0.0.0:9092"}, "", 2, "127.0.0.1 only"},
		"listen port":        {[]string{"-listen", "127.0.0.1:70000"}, "", 2, "0 to 65535"},
		"no file":            {[]string{"-records", "/nonexistent"}, "", 1, "/nonexistent"},
		"no JSON":            {nil, "{\"topic\": \"events\"}\nnonsense", 1, "standard input: record 2: invalid character"},
		"cut off":            {nil, `{"topic": "events"`, 1, "record 1: unexpected EOF"},
		"unknown field":      {nil, `{"topic": "events", "vlaue": 1}`, 1, `unknown field "vlaue"`},
		"unknown topic":      {nil, `{"topic": "evnts"}`, 1, `record 1: topic "evnts" is none of -topic`},
		"no topic":           {nil, `{"value": "a"}`, 1, `topic "" is none of -topic`},
		"partition":          {nil, `{"topic": "events", "partition": 4}`, 1, `no partition 4, only 0 to 1`},
		"negative partition": {nil, `{"topic": "events", "partition": -1}`, 1, `no partition -1`},
		"timestamp":          {nil, `{"topic": "events", "timestamp": 1.5}`, 1, `RFC 3339, or whole milliseconds`},
		"too large":          {nil, `{"topic": "events", "value": "` + strings.Repeat("x", 2<<20) + `"}`, 1, "MESSAGE_TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			args := test.args
			if args == nil {
				args = []string{"-topic", "events:2", "-records", "-"}
			}
			var stdout, stderr bytes.Buffer
			if status := run(t.Context(), args, strings.NewReader(test.in), &stdout, &stderr); status != test.status {
				t.Errorf("status %d, not %d", status, test.status)
			}
			if !strings.Contains(stderr.String(), test.want) {
				t.Errorf("it said %q, which lacks %q", &stderr, test.want)
			}
			if stdout.Len() > 0 {
				t.Errorf("it printed %q", &stdout)
			}
			if name == "help" && (!strings.Contains(stderr.String(), "keeps nothing") || !strings.Contains(stderr.String(), "-topic name:partitions")) {
				t.Errorf("the help is %s", &stderr)
			}
		})
	}
}
