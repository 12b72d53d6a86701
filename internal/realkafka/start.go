package realkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// shared is the broker of this test binary. It is the only state of the package:
// a test binary has one TestMain and gives its tests nothing to pass a broker on
// with, and a broker for each test would cost seconds each.
var shared sharedKafka

// sharedKafka is opened by the first test that asks, once. An error is kept as
// well: the next test would wait as long for the same.
type sharedKafka struct {
	mu      sync.Mutex
	options Options
	inMain  bool // there is somebody to close it
	asked   bool
	kafka   *Kafka
	err     error
}

// Main runs the tests and then stops the broker, if one of them started it. It
// returns the code to exit with, so that a package's TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(realkafka.Main(m)) }
func Main(m *testing.M) int {
	return MainWith(m, Options{})
}

// MainWith is [Main] with options for the broker.
func MainWith(m *testing.M, o Options) (code int) {
	shared.begin(o)
	defer func() {
		if err := shared.end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	return m.Run()
}

// Start returns the Kafka of this test binary and starts it if this is the first
// test to ask. The package's TestMain must call [Main].
//
// It skips the test when there is no Kafka, or fails it if ARROYO_REQUIRE_KAFKA
// is 1. If the test fails, what the broker logged during it is printed.
func Start(tb testing.TB) *Kafka {
	tb.Helper()
	k, err := shared.get()
	if errors.Is(err, ErrUnavailable) && !kafkaRequired() {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	k.showLog(tb)
	return k
}

// showLog prints what the broker logs from now on, should the test fail.
func (k *Kafka) showLog(tb testing.TB) {
	if k.broker == nil {
		return
	}
	path := k.broker.logFile()
	from := logSize(path)
	tb.Cleanup(func() {
		if !tb.Failed() {
			return
		}
		tail, err := logTail(path, from)
		if err != nil {
			tb.Log(err)
			return
		}
		tb.Logf("the end of the broker's log since this test began:\n%s", tail)
	})
}

func (s *sharedKafka) begin(o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options = o
	s.inMain = true
}

// get returns the Kafka, or the error of opening it or that it has ended.
func (s *sharedKafka) get() (*Kafka, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.inMain {
		return nil, errors.New("realkafka: nobody would stop the broker: have TestMain call os.Exit(realkafka.Main(m))")
	}
	if !s.asked {
		s.asked = true
		s.kafka, s.err = s.open()
	}
	if s.err != nil {
		return nil, s.err
	}
	if s.kafka.broker != nil {
		if err := s.kafka.broker.check(); err != nil {
			return nil, fmt.Errorf("an earlier test left no broker: %w", err)
		}
	}
	return s.kafka, nil
}

// open takes no test's context, as the broker is not for that test alone. It is
// bounded by the time that a broker may take to be ready.
func (s *sharedKafka) open() (*Kafka, error) {
	if brokers := externalBrokers(); len(brokers) > 0 {
		return connect(context.Background(), brokers)
	}
	return Open(context.Background(), s.options)
}

func (s *sharedKafka) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inMain = false
	if s.kafka == nil {
		return nil
	}
	return s.kafka.Close()
}
