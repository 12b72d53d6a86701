package arroyo

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transportHooks tells of brokers that cannot be reached: kgo retries without
// a word.
type transportHooks struct{ c *Consumer }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (h transportHooks) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	broker := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	switch {
	case h.c.ending || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed):
	case err == nil:
		h.c.recovered(broker)
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism):
		h.c.report(broker, Epoch{}, &AuthenticationError{broker, err}, true)
	default:
		h.c.report(broker, Epoch{}, &TransportError{broker, err}, false)
	}
}

const (
	// topicGrace is how long a topic may be unknown: metadata spreads slowly
	// after a topic was made.
	topicGrace      = 5 * time.Second
	topicCheckPause = 500 * time.Millisecond
)

// checkTopics looks once, before the first assignment, whether the topics
// exist: kgo waits silently for one that does not.
func (c *Consumer) checkTopics() {
	ctx, cancel := context.WithCancel(c.root)
	defer cancel()
	c.running.start(func() {
		select {
		case <-c.draining:
			cancel()
		case <-ctx.Done():
		}
	})
	var unknownSince time.Time
	for {
		unknown, err := c.unknownTopic(ctx)
		switch {
		case err == nil && unknown == "":
			return
		case err != nil:
			// The broker cannot be reached; the hooks above say so.
			unknownSince = time.Time{}
		case unknownSince.IsZero():
			unknownSince = time.Now()
		case time.Since(unknownSince) >= topicGrace:
			c.mu.Lock()
			c.report(unknown, Epoch{}, &UnknownTopicError{unknown}, true)
			c.mu.Unlock()
			return
		}
		if !c.sleep(ctx, topicCheckPause) {
			return
		}
	}
}

func (c *Consumer) unknownTopic(ctx context.Context) (string, error) {
	req := metadataRequest(c.topics)
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return "", err
	}
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.ErrorCode == kerr.UnknownTopicOrPartition.Code && t.Topic != nil {
			return *t.Topic, nil
		}
	}
	return "", nil
}

func metadataRequest(topics []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, rt)
	}
	return req
}
