// Command memkafka runs a fake Kafka on a port of the loopback interface, for CI jobs and for work on a machine of one's
// own, in any language. It is franz-go's kfake with the corrections of package memkafka. It keeps everything in memory
// and nothing on disk: what was produced is gone when it stops.
//
//	memkafka -topic events:4 -topic dead:1 -listen 127.0.0.1:9092 -records events.jsonl
//
// It prints one line to standard output when it is ready, "ready 127.0.0.1:9092", with what clients take for
// bootstrap.servers. On SIGINT or SIGTERM it stops, with status 0. With bad flags or records, or if it cannot have the
// port, it says why on standard error and ends with status 2 or 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/arroyo-go/arroyo/memkafka"
)

const help = `memkafka is a fake Kafka for tests and local work: one or more brokers on the
loopback interface. It is not a database: it keeps nothing, all topics, records
and commits are gone when it stops.

	memkafka -topic events:4 -listen 127.0.0.1:9092 -records events.jsonl

It prints "ready HOST:PORT" when clients can connect, to that address as their
bootstrap server, and stops on SIGINT or SIGTERM.

Flags:
`

const helpRecords = `
Each line of the file of -records is a JSON object:

	topic      one of -topic
	partition  where it goes; by default, where Kafka's own producers would send
	           its key, or if it has none, around the partitions
	key        text, or any JSON; null by default
	value      text, or any JSON, which goes in as JSON text; null by default
	headers    an object of texts
	timestamp  RFC 3339, or milliseconds since 1970; now by default
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run serves until ctx ends, and returns the status to exit with.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2 // the flag set has said why
	}
	if err := serve(ctx, c, stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "memkafka:", err)
		return 1
	}
	return 0
}

type config struct {
	topics  map[string]int // partitions by name
	brokers int
	port    int
	records string
}

func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{topics: make(map[string]int)}
	flags := flag.NewFlagSet("memkafka", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, help)
		flags.PrintDefaults()
		fmt.Fprint(stderr, helpRecords)
	}
	flags.Func("topic", "a topic to create, as `name:partitions`; give it once for each topic", func(s string) error {
		name, count, ok := strings.Cut(s, ":")
		partitions, err := strconv.Atoi(count)
		if !ok || err != nil {
			return errors.New("give name:partitions, as events:4")
		}
		if c.topics[name] != 0 {
			return errors.New("the topic was given already")
		}
		c.topics[name] = partitions
		return nil
	})
	flags.Func("listen", "the `address` of the first broker, on 127.0.0.1; others have the ports that follow (default 127.0.0.1:0, which is any free port)", func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			return err
		}
		if host != "127.0.0.1" && host != "localhost" {
			return errors.New("a fake without any security listens on 127.0.0.1 only")
		}
		c.port, err = strconv.Atoi(port)
		if err != nil || c.port < 0 || c.port > 65535 {
			return errors.New("give a port from 0 to 65535")
		}
		return nil
	})
	flags.IntVar(&c.brokers, "brokers", 1, "how many brokers there are, `n` from 1 to 100")
	flags.StringVar(&c.records, "records", "", "a `file` of records to begin with, as JSON lines; - is standard input")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unexpected argument %q: topics are given by -topic, see -h", flags.Arg(0))
		fmt.Fprintln(stderr, "memkafka:", err)
		return nil, err
	}
	return c, nil
}

func serve(ctx context.Context, c *config, stdin io.Reader, stdout io.Writer) error {
	opts := []memkafka.Option{memkafka.Brokers(c.brokers), memkafka.Loopback(c.port)}
	for name, partitions := range c.topics {
		opts = append(opts, memkafka.Topic(name, partitions))
	}
	broker, err := memkafka.Open(opts...)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "memkafka: "))
	}
	defer broker.Close()
	if c.records != "" {
		loaded := make(chan error, 1)
		go func() { loaded <- load(broker, c, stdin) }()
		select {
		case err := <-loaded:
			if err != nil {
				return err
			}
		case <-ctx.Done(): // standard input may never end
			return nil
		}
	}
	if _, err := fmt.Fprintln(stdout, "ready", broker.Addr()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// load produces the records of the file.
func load(broker *memkafka.Broker, c *config, stdin io.Reader) error {
	in, file := stdin, c.records
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	} else {
		file = "standard input"
	}
	if err := produce(broker, c.topics, in); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}
