package memkafka

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A consumer that has read everything asks again and again whether there is more, Arroyo's four times a second. That
// kfake is asked each time is half of what an idle hour costs in a bubble. So a wire answers by itself a fetch that asks
// what the one before has asked, with what kfake has answered to that, nothing, unless something has happened since that
// may have changed the answer. In doubt kfake is asked.

// idleFetch is what the reader of a wire knows of the last fetch request that kfake got from it.
type idleFetch struct {
	asked []byte // the request; empty if another one can't ask the same
	count int64  // of changes, before kfake had it
}

// fetchHead is the beginning of a fetch request, as of version 15.
type fetchHead struct {
	at             int // where the request begins behind its header
	wait           time.Duration
	session, epoch int32
	same           bool // it asks for what the session has
}

const (
	oldestIdleFetch = 15
	fetchHeadSize   = 23
	emptyFetchSize  = 21 // an answer without anything, in all
)

// parseFetchHead reads the beginning of a fetch request. It returns false of one that it does not understand.
func parseFetchHead(start []byte, h header) (fetchHead, bool) {
	at := 14 + max(0, int(int16(binary.BigEndian.Uint16(start[12:])))) + 1
	if h.version < oldestIdleFetch || len(start) < at+fetchHeadSize || start[at-1] != 0 {
		return fetchHead{}, false
	}
	f := start[at:]
	return fetchHead{
		at:      at,
		wait:    time.Duration(int32(binary.BigEndian.Uint32(f))) * time.Millisecond,
		session: int32(binary.BigEndian.Uint32(f[13:])),
		epoch:   int32(binary.BigEndian.Uint32(f[17:])),
		same:    f[21] == 1 && f[22] == 1, // no topics, and none to forget
	}, true
}

// fetch passes a fetch request on that no fault is for, or answers it.
func (w *wire) fetch(h header) error {
	start, err := w.in.Peek(min(h.size, w.in.Size()))
	if err != nil {
		return err
	}
	head, ok := parseFetchHead(start, h)
	asks := ok && len(start) == h.size && head.same && head.session > 0 && head.epoch > 0
	left := head.wait
	if asks && w.asksAgain(start, head) {
		var answered bool
		if answered, left, err = w.answerIdle(h, head); answered || err != nil {
			return err
		}
	}
	w.idle.asked = w.idle.asked[:0]
	if asks {
		w.idle.asked = append(w.idle.asked, start...)
	}
	w.idle.count = w.tap.changes.now()
	if !ok {
		w.expect(exchange{correlation: h.correlation, kind: h.kind, version: h.version})
		return nil
	}
	if behind := w.tap.changes.behind(head); behind != 0 || left != head.wait {
		frame := make([]byte, h.size)
		if _, err := io.ReadFull(w.in, frame); err != nil {
			return err
		}
		head.rewrite(frame, behind, left)
		w.pass, w.ready = 0, frame
	}
	w.expect(exchange{correlation: h.correlation, kind: h.kind, version: h.version})
	return nil
}

// rewrite makes a request of a client one that kfake understands: with its own epoch of the session, and for what is left
// to wait.
func (head fetchHead) rewrite(frame []byte, behind int32, left time.Duration) {
	f := frame[head.at:]
	binary.BigEndian.PutUint32(f, uint32((left+time.Millisecond-1)/time.Millisecond))
	binary.BigEndian.PutUint32(f[17:], uint32(head.epoch-behind))
}

// asksAgain tells whether a fetch asks what the last one has asked that kfake got.
func (w *wire) asksAgain(frame []byte, head fetchHead) bool {
	asked, epoch := w.idle.asked, head.at+17
	return len(asked) == len(frame) && bytes.Equal(asked[12:epoch], frame[12:epoch]) && bytes.Equal(asked[epoch+4:], frame[epoch+4:])
}

// answerIdle answers a fetch that asks what the last one has asked, if it is sure of the answer, when its wait is over. If
// it is not it says how much of the wait is left.
func (w *wire) answerIdle(h header, head fetchHead) (answered bool, left time.Duration, err error) {
	w.mu.Lock()
	answer := w.nothing
	unsure := len(answer) == 0 || w.muted || len(w.pending)+len(w.held) > 0
	w.mu.Unlock()
	if unsure {
		return false, head.wait, nil
	}
	change, ok := w.tap.changes.since(w.idle.count)
	if !ok {
		return false, head.wait, nil
	}
	began := time.Now()
	timer := time.NewTimer(head.wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-change:
		return false, max(0, head.wait-time.Since(began)), nil
	case <-w.closed:
		return false, 0, net.ErrClosed
	case <-w.link.reset:
		return false, 0, net.ErrClosed
	}
	w.pass = 0
	if _, err := w.in.Discard(h.size); err != nil {
		return false, 0, err
	}
	w.tap.changes.fallBehind(head)
	answer = slices.Clone(answer)
	binary.BigEndian.PutUint32(answer[4:], uint32(h.correlation))
	_, err = w.conn.Write(answer)
	return true, 0, err
}

// noteNothing keeps the answer to a fetch if it has nothing. The caller holds mu.
func (w *wire) noteNothing(p []byte) {
	w.nothing = nil // the reader may have the old one
	if len(p) == emptyFetchSize && p[8] == 0 && p[13] == 0 && p[14] == 0 && p[19] == 1 && p[20] == 0 {
		w.nothing = slices.Clone(p)
	}
}

// rewindFetch makes a fetch that a fault may be for one that kfake understands.
func (w *wire) rewindFetch(frame []byte, h header) {
	w.idle.asked = w.idle.asked[:0]
	if head, ok := parseFetchHead(frame, h); ok {
		head.rewrite(frame, w.tap.changes.behind(head), head.wait)
	}
}

// changesLogs tells whether requests of the kind may change what fetches return.
func changesLogs(kind int16) bool {
	switch kmsg.Key(kind) {
	case kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata, kmsg.OffsetForLeaderEpoch, kmsg.ApiVersions, kmsg.DescribeCluster,
		kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.FindCoordinator, kmsg.DescribeConfigs,
		kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.ConsumerGroupHeartbeat,
		kmsg.DescribeGroups, kmsg.ListGroups, kmsg.ConsumerGroupDescribe, kmsg.DeleteGroups,
		kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.OffsetDelete:
		return false
	}
	return true
}

// changesLater tells whether, because of the request, what fetches return may change at a later time: transactions time
// out, and topics may have been given a retention. So it does of requests that get no answer.
func (w *wire) changesLater(h header) bool {
	switch kmsg.Key(h.kind) {
	case kmsg.Produce:
		return !w.wantsAnswer(h)
	case kmsg.InitProducerID:
		return w.isTransactional(h)
	case kmsg.CreateTopics, kmsg.AlterConfigs, kmsg.IncrementalAlterConfigs:
		return true
	}
	return false
}
