package memkafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inSession tells whether it can't be said which partitions a fetch request is for, though the fault asks: within a
// fetch session (KIP-227) a request names only what is new. Full requests begin no session while there is such a fault.
func (w *wire) inSession(h header, f *Fault, req kmsg.Request) bool {
	fetch, ok := req.(*kmsg.FetchRequest)
	if !ok || f.topic == "" && f.partitions == nil || f.spent() {
		return false
	}
	if fetch.SessionEpoch == 0 {
		fetch.SessionEpoch = -1
		w.ready = w.encode(h, req)
	}
	return fetch.SessionEpoch > 0
}

// answerFetchSession tells the client to begin the session anew, as a broker does that had to drop it.
func (w *wire) answerFetchSession(h header, req kmsg.Request) error {
	if err := w.allAnswered(); err != nil {
		return err
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
	_, err := w.conn.Write(encodeAnswer(h.correlation, resp))
	return err
}
