package memkafka

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What becomes of the request of a member that waits in a join or a sync, and is removed from its group: Kafka answers it
// at once. kfake does not, and worse: it counts one that waited in a sync as one that has left the join, so that the group
// then waits for one more than it has members, until the rebalance times out.

// removes is told of a classic member that is about to be removed. If it waits in a sync, that ends with why, or because
// of the rebalance.
func (t *tap) removes(group string, m kfake.GroupMember, why *kerr.Error) {
	var like *kmsg.JoinGroupRequest
	t.mu.Lock()
	for _, w := range t.waitsLocked(group, m) {
		if notes := t.members[w.member]; w.join == nil && notes != nil {
			w.refusal = why
			like = notes.join
		}
	}
	t.mu.Unlock()
	if like != nil {
		t.broker.endSyncs(like)
	}
}

// removed is told of one that was removed. If it waits in a join, that ends.
func (t *tap) removed(group string, m kfake.GroupMember) {
	t.mu.Lock()
	waits := t.waitsLocked(group, m)
	t.mu.Unlock()
	for _, w := range waits {
		w.wire.refuse(w, kerr.UnknownMemberID)
	}
}

// leaves is told of a request to leave, and joins of one to join, before kfake is.
func (t *tap) leaves(w *wire, req *kmsg.LeaveGroupRequest) {
	if !t.coordinates(w, req.Group) {
		return
	}
	if req.Version < 3 {
		t.removes(req.Group, kfake.GroupMember{MemberID: req.MemberID}, kerr.UnknownMemberID)
	}
	for _, m := range req.Members {
		t.removes(req.Group, kfake.GroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID}, kerr.UnknownMemberID)
	}
}

// joins: a static member that joins without an ID takes the place of the one that had its instance ID before. And one
// that kfake takes for waiting in a sync, though its connection has ended, is not counted as one that has joined, unless
// it joins as it did before, which begins no rebalance.
func (t *tap) joins(w *wire, req *kmsg.JoinGroupRequest) {
	t.mu.Lock()
	m := t.members[req.MemberID]
	again := m != nil && m.join != nil && !sameProtocols(m.join, req)
	t.mu.Unlock()
	replaces := req.MemberID == "" && req.InstanceID != nil
	if !again && !replaces || !t.coordinates(w, req.Group) {
		return
	}
	if again {
		t.removes(req.Group, kfake.GroupMember{MemberID: req.MemberID}, nil)
	} else {
		t.removes(req.Group, kfake.GroupMember{InstanceID: req.InstanceID}, kerr.FencedInstanceID)
	}
}

func sameProtocols(a, b *kmsg.JoinGroupRequest) bool {
	return slices.EqualFunc(a.Protocols, b.Protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

func (t *tap) coordinates(w *wire, group string) bool {
	release, err := t.broker.use()
	if err != nil {
		return false
	}
	defer release()
	return t.broker.cluster.CoordinatorFor(group) == w.broker()
}

// endSyncs has kfake answer all who wait in a sync of the group, as it does when a rebalance begins. A member begins it
// that joins, like another one, and leaves.
func (b *Broker) endSyncs(like *kmsg.JoinGroupRequest) {
	release, err := b.use()
	if err != nil {
		return // closed
	}
	defer release()
	// kfake drops its join too when it leaves, and with it the connection. So it needs one of its own.
	client, err := b.newOwnClient()
	if err != nil {
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()

	req := *like
	instance := fmt.Sprintf("memkafka-%p", client)
	req.MemberID, req.InstanceID = "", &instance // a static one is in at once
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = client.Broker(int(b.cluster.CoordinatorFor(req.Group))).Request(ctx, &req)
	}()
	for joined := false; !joined && ctx.Err() == nil; {
		select {
		case <-time.After(time.Millisecond):
		case <-answered:
			joined = true
		}
		info := b.cluster.GroupInfo(req.Group)
		joined = joined || info != nil && slices.ContainsFunc(info.Members, func(m kfake.GroupMember) bool {
			return m.InstanceID != nil && *m.InstanceID == instance
		})
	}
	rm := kmsg.NewLeaveGroupRequestMember()
	rm.InstanceID = &instance
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = req.Group, append(leave.Members, rm)
	_, _ = askCoordinator[*kmsg.LeaveGroupResponse](b, req.Group, leave) // an error means that it is not in: closed
	cancel()
	<-answered
}

// refuse answers a request that waits in kfake's place, which has dropped it with the member and reads nothing more from
// the connection before it has answered. So that ends.
func (w *wire) refuse(wait *joinWait, err *kerr.Error) {
	w.mu.Lock()
	i := slices.IndexFunc(w.pending, func(ex exchange) bool { return ex.joining == wait })
	if i < 0 {
		w.mu.Unlock()
		return // it is answered
	}
	ex := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	w.mu.Unlock()
	wait.end()
	_, _ = w.write(refuse(ex, err), ex, true) // an error means that nobody is there any more
	w.mu.Lock()
	w.last = true
	now := len(w.held) == 0 && !w.muted
	w.mu.Unlock()
	if now {
		w.Close()
	}
}

// refuse makes an answer that is an error.
func refuse(ex exchange, err *kerr.Error) []byte {
	resp := ex.request.ResponseKind()
	resp.SetVersion(ex.version)
	switch resp := resp.(type) {
	case *kmsg.JoinGroupResponse:
		resp.ErrorCode, resp.Generation = err.Code, -1
	case *kmsg.SyncGroupResponse:
		resp.ErrorCode = err.Code
	}
	return encodeAnswer(ex.correlation, resp)
}
