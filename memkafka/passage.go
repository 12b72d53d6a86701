package memkafka

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxRequest is Kafka's socket.request.max.bytes.
const maxRequest = 100 << 20

// passage is a connection that leads through the front. Requests pass as they are; of the responses, those that name
// brokers have their addresses replaced.
type passage struct {
	front *front

	mu      sync.Mutex
	waiting map[int32]kmsg.Request // by correlation ID, requests whose responses may name brokers
}

func (p *passage) requests(from io.Reader, to io.Writer) error {
	var frame []byte
	for {
		var err error
		if frame, err = readFrame(from, frame, maxRequest); err != nil {
			return err
		}
		if err := p.note(frame); err != nil {
			return err
		}
		if _, err := to.Write(frame); err != nil {
			return err
		}
	}
}

func (p *passage) responses(from io.Reader, to io.Writer) error {
	var frame []byte
	for {
		var err error
		if frame, err = readFrame(from, frame, 1<<31-1); err != nil {
			return err
		}
		if _, err := to.Write(p.readdress(frame)); err != nil {
			return err
		}
	}
}

// note remembers the request if its response may name brokers.
func (p *passage) note(frame []byte) error {
	if len(frame) < 12 {
		return io.ErrUnexpectedEOF
	}
	h := header{
		size:        len(frame),
		kind:        int16(binary.BigEndian.Uint16(frame[4:])),
		version:     int16(binary.BigEndian.Uint16(frame[6:])),
		correlation: int32(binary.BigEndian.Uint32(frame[8:])),
	}
	req := kmsg.RequestForKey(h.kind)
	if req == nil {
		return fmt.Errorf("unknown kind of request: %d", h.kind) // kfake would panic; Kafka closes the connection
	}
	if !namesBrokers(h.kind, h.version) {
		return nil
	}
	if h.kind == int16(kmsg.Produce) {
		if full, ok := parse(frame, h); ok && full.(*kmsg.ProduceRequest).Acks == 0 {
			return nil // gets no response
		}
	}
	req.SetVersion(h.version)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting[h.correlation] = req
	return nil
}

// readdress replaces the addresses of brokers in a response by those at which they are reached by TCP.
func (p *passage) readdress(frame []byte) []byte {
	if len(frame) < 8 {
		return frame
	}
	correlation := int32(binary.BigEndian.Uint32(frame[4:]))
	p.mu.Lock()
	req, ok := p.waiting[correlation]
	delete(p.waiting, correlation)
	p.mu.Unlock()
	if !ok {
		return frame
	}
	resp, ok := parseAnswer(frame, req)
	if !ok || !readdressBrokers(resp, p.front.addrs) {
		return frame
	}
	out := append([]byte(nil), frame[:8]...)
	if resp.IsFlexible() {
		out = append(out, 0) // no tags
	}
	out = resp.AppendTo(out)
	binary.BigEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

// readFrame reads a request or response with its size, into buf if it is large enough.
func readFrame(r io.Reader, buf []byte, most int) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n > most {
		return nil, fmt.Errorf("%d bytes are too many", n)
	}
	if cap(buf) < 4+n {
		buf = make([]byte, 4+n)
	}
	buf = buf[:4+n]
	copy(buf, size[:])
	_, err := io.ReadFull(r, buf[4:])
	return buf, err
}
