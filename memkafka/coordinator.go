package memkafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askCoordinator sends a request to the broker that coordinates the group now. kgo asks the one that it remembers, and of
// what that refuses tries only some kinds again with another: not the heartbeats of KIP-848, nor deletions of offsets.
func askCoordinator[R kmsg.Response](b *Broker, group string, req kmsg.Request) (R, error) {
	var none R
	release, err := b.use()
	if err != nil {
		return none, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(b.ctx, waitTimeout)
	defer cancel()
	for {
		resp, err := b.client.Broker(int(b.cluster.CoordinatorFor(group))).RetriableRequest(ctx, req)
		if err != nil {
			return none, b.why(ctx, err)
		}
		err = groupError(resp)
		if !errors.Is(err, kerr.NotCoordinator) {
			return resp.(R), err
		}
		select { // it has moved meanwhile
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return none, b.why(ctx, err)
		}
	}
}

// groupError returns the error that an answer of a coordinator has for the one group that was asked about.
func groupError(resp kmsg.Response) error {
	var code int16
	switch resp := resp.(type) {
	case *kmsg.HeartbeatResponse:
		code = resp.ErrorCode
	case *kmsg.LeaveGroupResponse:
		code = resp.ErrorCode
		for _, m := range resp.Members {
			if code == 0 {
				code = m.ErrorCode
			}
		}
	case *kmsg.ConsumerGroupHeartbeatResponse:
		code = resp.ErrorCode
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, g := range resp.Groups {
			code = g.ErrorCode
		}
	case *kmsg.OffsetDeleteResponse:
		code = resp.ErrorCode
	}
	return kerr.ErrorForCode(code)
}
