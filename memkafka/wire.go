package memkafka

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tagNumber is that of the tagged field which says which connection a request came by. Kafka's own are small.
const tagNumber = 1 << 20

// wire is the brokers' end of a connection. What kfake reads from it and writes to it passes the tap: requests that a
// fault is for, or that the log has a line for, are looked at; of all others, only the header is.
type wire struct {
	*conn
	tap    *tap
	in     *bufio.Reader
	answer chan struct{} // a token once an answer was written
	tag    uint32        // guarded by tap.mu; 0 if none

	// Of the reader.
	ready []byte // to be read next
	pass  int    // how many bytes come next as they are
	idle  idleFetch

	mu      sync.Mutex
	client  string     // the client ID
	group   string     // of its last request that names one
	pending []exchange // requests without an answer so far, in order
	muted   bool       // no answer gets out any more
	last    bool       // the connection ends when what is held back is out
	gone    bool       // it has ended
	held    []heldAnswer
	// Whether a goroutine writes these.
	releasing bool
	pace      pacer
	wait      time.Time // what the pacer said of the answer that is written now
	nothing   []byte    // the answer to the last fetch request, if it has nothing
}

// exchange is a request that waits for its answer.
type exchange struct {
	correlation   int32
	kind, version int16
	request       kmsg.Request // nil if nobody wants to know
	fault         *Fault       // to be done to the answer
	joining       *joinWait
	changes       bool // what fetches return, maybe
}

// heldAnswer is an answer that goes out when until does, or it was healed.
type heldAnswer struct {
	bytes []byte
	until time.Time
	fault *Fault // nil: it waits only for those before it
}

func newWire(c *conn, t *tap) *wire {
	return &wire{conn: c, tap: t, in: bufio.NewReader(c), answer: make(chan struct{}, 1)}
}

func (w *wire) Close() error {
	w.tap.forget(w)
	w.mu.Lock()
	pending := w.pending
	w.pending, w.gone = nil, true
	w.mu.Unlock()
	for _, ex := range pending {
		ex.joining.leave()
	}
	return w.conn.Close()
}

func (w *wire) broker() int32 { return int32(w.link.port - firstPort) }

func (w *wire) exempt() bool { return w.link.host.kind == exempt }

func (w *wire) clientID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.client
}

func (w *wire) String() string { return describeClient(w.clientID(), w.link.host) }

func (w *wire) Read(p []byte) (int, error) {
	for {
		switch {
		case len(w.ready) > 0:
			n := copy(p, w.ready)
			w.ready = w.ready[n:]
			return n, nil
		case w.pass > 0:
			n, err := w.in.Read(p[:min(len(p), w.pass)])
			w.pass -= n
			return n, err
		}
		if err := w.next(); err != nil {
			return 0, err
		}
	}
}

// header is what each request begins with.
type header struct {
	size          int // of all of the request, with these four bytes
	kind, version int16
	correlation   int32
}

// next reads the header of the next request and decides what becomes of it.
func (w *wire) next() error {
	start, err := w.in.Peek(4)
	if err != nil {
		return err
	}
	size := 4 + int(binary.BigEndian.Uint32(start))
	start, err = w.in.Peek(min(size, 14))
	if err != nil {
		return err
	}
	w.pass = size
	if size < 14 {
		return nil // not a request that we know; kfake will say so
	}
	h := header{
		size:        size,
		kind:        int16(binary.BigEndian.Uint16(start[4:])),
		version:     int16(binary.BigEndian.Uint16(start[6:])),
		correlation: int32(binary.BigEndian.Uint32(start[8:])),
	}
	if err := w.readClientID(size, int(int16(binary.BigEndian.Uint16(start[12:])))); err != nil {
		return err
	}
	if w.changesLater(h) {
		w.tap.changes.giveUp()
	}
	if w.exempt() {
		if changesLogs(h.kind) {
			w.expect(exchange{correlation: h.correlation, kind: h.kind, version: h.version})
		}
		return nil
	}
	w.tap.log.count(h.kind)
	faults := w.tap.faultsOf(h.kind)
	if len(faults) == 0 && !logged(h.kind) && !w.hides(h.kind) {
		if h.kind == int16(kmsg.Fetch) {
			return w.fetch(h)
		}
		if h.kind != int16(kmsg.Produce) || w.wantsAnswer(h) {
			w.expect(exchange{correlation: h.correlation, kind: h.kind, version: h.version})
		}
		return nil
	}

	frame := make([]byte, size)
	if _, err := io.ReadFull(w.in, frame); err != nil {
		return err
	}
	w.pass, w.ready = 0, frame
	if h.kind == int16(kmsg.Fetch) {
		w.rewindFetch(frame, h)
	}
	req, ok := parse(frame, h)
	if !ok {
		return nil // kfake will find that out
	}
	return w.handle(h, req, faults)
}

// readClientID notes the client ID, which is length bytes long.
func (w *wire) readClientID(size, length int) error {
	if length < 0 || 14+length > min(size, w.in.Size()) {
		return nil
	}
	start, err := w.in.Peek(14 + length)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if id := start[14:]; string(id) != w.client {
		w.client = string(id)
	}
	return nil
}

// wantsAnswer tells whether a produce request is of the kind that is answered: one whose acks are not 0.
func (w *wire) wantsAnswer(h header) bool {
	start, _ := w.in.Peek(min(h.size, w.in.Size()))
	if len(start) < 12 {
		return true
	}
	r := kbin.Reader{Src: start[12:]}
	r.UnsafeNullableString()
	switch {
	case h.version >= 9:
		kmsg.SkipTags(&r)
		r.UnsafeCompactNullableString()
	case h.version >= 3:
		r.UnsafeNullableString()
	}
	return r.Int16() != 0 || !r.Ok()
}

// isTransactional tells whether a producer's first request is one of a transactional producer.
func (w *wire) isTransactional(h header) bool {
	start, _ := w.in.Peek(min(h.size, w.in.Size()))
	if len(start) < 12 {
		return true
	}
	r := kbin.Reader{Src: start[12:]}
	r.UnsafeNullableString()
	var id *string
	if h.version >= 2 {
		kmsg.SkipTags(&r)
		id = r.UnsafeCompactNullableString()
	} else {
		id = r.UnsafeNullableString()
	}
	return id != nil || !r.Ok()
}

// handle does to a request what faults say, and passes it on unless they say otherwise.
func (w *wire) handle(h header, req kmsg.Request, faults []*Fault) error {
	ex := exchange{correlation: h.correlation, kind: h.kind, version: h.version, request: req}
	tag := false
	for _, f := range faults {
		if f.what == failing {
			tag = true
			continue
		}
		if ex.fault != nil {
			continue
		}
		if w.inSession(h, f, req) {
			w.ready = nil
			return w.answerFetchSession(h, req)
		}
		if !f.selects(w, req) || !f.take(nil, w) {
			continue
		}
		ex.fault = f
	}
	switch f := ex.fault; {
	case f == nil:
	case f.applied: // seen to when the answer comes
	case f.what == disconnecting:
		if err := w.allAnswered(); err != nil {
			return err
		}
		w.Close()
		return net.ErrClosed
	case f.what == swallowing:
		w.ready = nil
		if _, err := io.Copy(io.Discard, w.in); err != nil {
			return err
		}
		return io.EOF
	case f.what == delaying:
		if err := w.sleep(f.delay, f.healed); err != nil {
			return err
		}
		ex.fault = nil
	}
	if tag && req.IsFlexible() {
		w.ready = w.tagRequest(h, req)
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil
	}
	w.tap.sawRequest(w, &ex)
	w.expect(ex)
	return nil
}

func (w *wire) sleep(d time.Duration, healed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-healed:
	case <-w.closed:
		return net.ErrClosed
	}
	return nil
}

func (w *wire) expect(ex exchange) {
	if ex.changes = changesLogs(ex.kind); ex.changes {
		w.tap.changes.begin()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		ex.joining.leave()
		return
	}
	w.pending = append(w.pending, ex)
}

// allAnswered waits until the requests before this one have their answers: these are in order.
func (w *wire) allAnswered() error {
	for {
		w.mu.Lock()
		n := len(w.pending) + len(w.held)
		w.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-w.answer:
		case <-w.closed:
			return net.ErrClosed
		case <-w.link.reset:
			return net.ErrClosed
		}
	}
}

// Write takes one answer at a time, as kfake gives them, each on a new goroutine. Those that nobody looks at take a path
// that is shallow enough for its stack, which would have to grow otherwise: that took longer than all else here.
func (w *wire) Write(p []byte) (int, error) {
	if !w.passes(p) {
		return w.writeLookedAt(p)
	}
	n, err := w.conn.Write(p)
	notify(w.answer)
	return n, err
}

// passes tells whether an answer goes out as it is, and takes its request from those which wait.
func (w *wire) passes(p []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.exempt() {
		w.wait = w.pace.due()
	}
	if w.muted || len(w.held) > 0 || !w.wait.IsZero() {
		return false
	}
	i := w.waiting(p)
	if i < 0 {
		return true
	}
	ex := &w.pending[i]
	if ex.request != nil || ex.fault != nil || ex.joining != nil {
		return false
	}
	if ex.kind == int16(kmsg.Fetch) {
		w.noteNothing(p)
	}
	w.takeLocked(i)
	return true
}

// takeLocked takes a request from those which wait.
func (w *wire) takeLocked(i int) {
	if w.pending[i].changes {
		w.tap.changes.end()
	}
	w.pending = slices.Delete(w.pending, i, i+1)
}

func (w *wire) writeLookedAt(p []byte) (int, error) {
	ex, ok := w.answered(p)
	if refusal := ex.joining.end(); refusal != nil {
		p = refuse(ex, refusal)
	}
	return w.write(p, ex, ok)
}

// write passes an answer on, to the request ex if known.
func (w *wire) write(p []byte, ex exchange, known bool) (int, error) {
	defer notify(w.answer)
	size := len(p)
	var hold heldAnswer
	if known {
		switch {
		case ex.request == nil:
		case logged(ex.kind):
			w.tap.sawAnswer(w, ex, p)
		case w.hides(ex.kind):
			p = w.hide(ex, p)
		}
		if f := ex.fault; f != nil {
			switch f.what {
			case disconnecting:
				w.Close()
				return 0, net.ErrClosed
			case swallowing:
				w.mu.Lock()
				w.muted = true
				w.mu.Unlock()
			case delaying:
				hold = heldAnswer{until: time.Now().Add(f.delay), fault: f}
			}
		}
	}
	w.mu.Lock()
	if w.muted {
		w.mu.Unlock()
		return size, nil
	}
	if hold.fault == nil {
		hold.until = w.wait
	}
	if !hold.until.IsZero() || len(w.held) > 0 {
		hold.bytes = slices.Clone(p)
		w.held = append(w.held, hold)
		if !w.releasing {
			w.releasing = true
			go w.release()
		}
		w.mu.Unlock()
		return size, nil
	}
	w.mu.Unlock()
	if n, err := w.conn.Write(p); err != nil {
		return min(n, size), err
	}
	return size, nil
}

// hides tells whether answers to requests of the kind name brokers, and some should not be named.
func (w *wire) hides(kind int16) bool {
	return kind == int16(kmsg.Metadata) && w.tap.broker.stops.any.Load()
}

// hide returns the answer without the brokers that are stopped.
func (w *wire) hide(ex exchange, p []byte) []byte {
	resp, ok := parseAnswer(p, ex.request)
	if !ok {
		return p
	}
	w.tap.broker.hideStopped(resp.(*kmsg.MetadataResponse))
	return encodeAnswer(ex.correlation, resp)
}

// answered takes the request that the answer is for from those which wait.
func (w *wire) answered(p []byte) (exchange, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.waiting(p)
	if i < 0 {
		return exchange{}, false
	}
	ex := w.pending[i]
	w.takeLocked(i)
	w.nothing = nil
	return ex, true
}

// waiting finds the request that the answer is for; -1: it is for none that we know of. The caller holds mu.
func (w *wire) waiting(p []byte) int {
	if len(p) < 8 {
		return -1
	}
	correlation := int32(binary.BigEndian.Uint32(p[4:]))
	for i := range w.pending {
		if w.pending[i].correlation == correlation {
			return i
		}
	}
	return -1
}

// release writes the answers that are held back, as their time comes.
func (w *wire) release() {
	for {
		w.mu.Lock()
		if len(w.held) == 0 {
			w.releasing = false
			last := w.last
			w.mu.Unlock()
			notify(w.answer)
			if last {
				w.Close()
			}
			return
		}
		next := w.held[0]
		w.mu.Unlock()
		var healed <-chan struct{}
		if next.fault != nil {
			healed = next.fault.healed
		}
		if !next.until.IsZero() && w.sleep(time.Until(next.until), healed) != nil {
			return
		}
		if _, err := w.conn.Write(next.bytes); err != nil {
			return
		}
		w.mu.Lock()
		w.held = w.held[1:]
		w.mu.Unlock()
	}
}

// parse reads a request.
func parse(frame []byte, h header) (kmsg.Request, bool) {
	req := kmsg.RequestForKey(h.kind)
	if req == nil {
		return nil, false
	}
	req.SetVersion(h.version)
	r := kbin.Reader{Src: frame[12:]}
	r.NullableString() // the client ID
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() || h.version < 0 || h.version > req.MaxVersion() || req.ReadFrom(r.Src) != nil {
		return nil, false
	}
	return req, true
}

// parseAnswer reads what kfake answered to a request.
func parseAnswer(p []byte, req kmsg.Request) (kmsg.Response, bool) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	r := kbin.Reader{Src: p[8:]}
	if resp.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if !r.Ok() || resp.ReadFrom(r.Src) != nil {
		return nil, false
	}
	return resp, true
}

// encode is the opposite of parse.
func (w *wire) encode(h header, req kmsg.Request) []byte {
	frame := make([]byte, 4, h.size+16)
	frame = kbin.AppendInt16(frame, h.kind)
	frame = kbin.AppendInt16(frame, h.version)
	frame = kbin.AppendInt32(frame, h.correlation)
	frame = kbin.AppendString(frame, w.clientID())
	if req.IsFlexible() {
		frame = append(frame, 0)
	}
	frame = req.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// encodeAnswer is the opposite of parseAnswer.
func encodeAnswer(correlation int32, resp kmsg.Response) []byte {
	frame := kbin.AppendInt32(make([]byte, 4), correlation)
	if resp.IsFlexible() {
		frame = append(frame, 0)
	}
	frame = resp.AppendTo(frame)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}
