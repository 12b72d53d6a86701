package arroyo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// mangledKinds are the answers that are mangled: those that this package reads
// itself, and those from which kgo makes what it tells this package.
var mangledKinds = []kmsg.Key{
	kmsg.Fetch, kmsg.OffsetFetch, kmsg.OffsetCommit, kmsg.ListOffsets, kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat,
	kmsg.JoinGroup, kmsg.SyncGroup, kmsg.LeaveGroup, kmsg.FindCoordinator, kmsg.Metadata, kmsg.Produce,
	kmsg.OffsetForLeaderEpoch,
}

// mangling is a script: what to do to which answers. Each line of it is used
// once, so that what is mangled comes to an end.
type mangling struct {
	mu    sync.Mutex
	lines map[int16][]mangleLine
}

// mangleLine changes one answer.
type mangleLine struct {
	skip  int // answers before it are left alone
	at    int // where, from the start of the body; modulo its length
	how   byte
	value byte
}

// readMangling makes a script of any bytes, five for a line.
func readMangling(b []byte) *mangling {
	m := &mangling{lines: make(map[int16][]mangleLine)}
	for ; len(b) >= 5; b = b[5:] {
		key := int16(mangledKinds[int(b[0])%len(mangledKinds)])
		m.lines[key] = append(m.lines[key], mangleLine{int(b[0]) / len(mangledKinds) % 4, int(b[1])<<8 | int(b[2]), b[3], b[4]})
	}
	return m
}

// apply changes the body of an answer, behind the correlation ID.
func (m *mangling) apply(key int16, body []byte) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.lines[key]) > 0 && len(body) > 0 {
		line := &m.lines[key][0]
		if line.skip > 0 {
			line.skip--
			return body
		}
		m.lines[key] = m.lines[key][1:]
		at := line.at % len(body)
		switch line.how % 8 {
		case 0:
			body[at] = line.value
		case 1:
			body[at] ^= 1 << (line.value % 8)
		case 2: // a number that is huge or negative
			for i := range body[at:min(len(body), at+4)] {
				body[at+i] = line.value | 0x80
			}
		case 3:
			clear(body[at:min(len(body), at+int(line.value))])
		case 4:
			body = body[:at]
		case 5: // a part of it twice
			body = slices.Insert(body, at, body[at:min(len(body), at+int(line.value))]...)
		case 6: // a part is missing
			body = slices.Delete(body, at, min(len(body), at+1+int(line.value)%16))
		case 7: // and the next line for the same answer
			body[at] += line.value
			continue
		}
		return body
	}
	return body
}

// mangler is a connection whose answers are mangled.
type mangler struct {
	net.Conn
	script *mangling

	mu   sync.Mutex
	keys map[uint32]int16 // of the requests, by correlation ID

	sent bytes.Buffer // of a request that is not complete
	rest []byte       // of an answer that is not read yet
}

func (c *mangler) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent.Write(p)
	for {
		b := c.sent.Bytes()
		if len(b) < 12 || len(b) < 4+int(binary.BigEndian.Uint32(b)) {
			break
		}
		c.keys[binary.BigEndian.Uint32(b[8:])] = int16(binary.BigEndian.Uint16(b[4:]))
		c.sent.Next(4 + int(binary.BigEndian.Uint32(b)))
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *mangler) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		var head [8]byte
		if _, err := io.ReadFull(c.Conn, head[:]); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
		if _, err := io.ReadFull(c.Conn, body); err != nil {
			return 0, err
		}
		c.mu.Lock()
		id := binary.BigEndian.Uint32(head[4:])
		key := c.keys[id]
		delete(c.keys, id)
		c.mu.Unlock()
		body = c.script.apply(key, body)
		c.rest = binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
		c.rest = append(append(c.rest, head[4:]...), body...)
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// playMangled runs a consumer whose brokers talk nonsense now and then: it must
// not panic or hang, and ends when it is told to.
func playMangled(t *testing.T, data []byte) {
	if len(data) == 0 {
		return
	}
	config, script := data[0], readMangling(data[1:])
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2), memkafka.Topic(commits, 1), memkafka.Topic("dead", 1), memkafka.Topic("log", 1))
		produce(broker, 20)
		commitAs(t, broker, store, 0, 8)
		commitAs(t, broker, store, 1, 10)
		dial := dialerOf(t, broker)
		opts := append(broker.ClientOptions(), kgo.DisableFetchCRCValidation(), // else kgo finds most of it
			kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return &mangler{Conn: conn, script: script, keys: make(map[uint32]int16)}, nil
			}))
		opts = append(opts, protocols[int(config)%len(protocols)].opts...)
		copts := []arroyo.ConsumerOption{arroyo.ClientOptions(opts...)}
		switch config / 4 % 4 {
		case 1:
			copts = append(copts, arroyo.Start(arroyo.StartLatest()), arroyo.EndOfPartitionEvents())
		case 2:
			copts = append(copts, arroyo.Synchronize(arroyo.CommitLogTopic(commits), store))
		case 3:
			copts = append(copts, arroyo.Synchronize(arroyo.GroupOffsets(time.Second), store))
		}
		c, err := arroyo.NewConsumer(group, []string{topic}, copts...)
		if err != nil {
			t.Fatal(err)
		}
		p, err := arroyo.NewProcessor(c, strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
			if m.Payload.Offset%5 == 0 {
				return arroyo.Invalid(io.ErrUnexpectedEOF)
			}
			return nil
		}), quiet, arroyo.DeadLetter(arroyo.DeadLetterPolicy{Topic: "dead"}), arroyo.CommitLog("log"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.Run(ctx) // it may well fail
		}()
		time.Sleep(20 * time.Second)
		produce(broker, 10)
		_, _ = p.Status(), p.Health()
		began := time.Now()
		<-ended
		if took := time.Since(began); took > 2*time.Minute {
			t.Errorf("Run ended %v later; it was told to after 40 s", took)
		}
	})
}

func FuzzMangledAnswers(f *testing.F) {
	for kind := range byte(13) {
		for how := range byte(8) {
			f.Add([]byte{kind + how, kind, 0, 9, how, 200, kind + 13, 0, 30, how, 3, kind, 0, 17, 2, 255})
		}
	}
	f.Fuzz(playMangled)
}
