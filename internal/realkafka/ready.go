package realkafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	readyTimeout = 60 * time.Second
	probeTimeout = 5 * time.Second
	pollInterval = 50 * time.Millisecond
)

// errEnded tells that a broker's process is gone though nobody stopped it.
var errEnded = errors.New("the broker has ended by itself")

// waitReady returns when the cluster serves clients and groups, or with an error
// after a minute. It gives up when exited is closed; that may be nil.
func waitReady(ctx context.Context, brokers []string, exited <-chan struct{}) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.DialTimeout(time.Second),
		// A broker that starts answers with errors for a moment only: the
		// default backoff would be most of the wait.
		kgo.RetryBackoffFn(func(int) time.Duration { return pollInterval }),
		kgo.MetadataMinAge(pollInterval),
	)
	if err != nil {
		return fmt.Errorf("make a client of %v: %w", brokers, err)
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		err := probe(ctx, client, exited)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%w before it was ready", errEnded)
		default:
		}
		select {
		case <-exited:
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return fmt.Errorf("the broker at %v was not ready: %w, at last: %w", brokers, context.Cause(ctx), err)
		}
	}
}

// probe asks the cluster for all that tests need from the start: an answer, a
// live broker and a group coordinator that has loaded its groups.
func probe(ctx context.Context, client *kgo.Client, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	go func() {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()

	if err := client.Ping(ctx); err != nil {
		return err
	}
	admin := kadm.NewClient(client)
	meta, err := admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if len(meta.Brokers) == 0 || meta.Controller < 0 {
		return errors.New("the cluster has no live broker yet")
	}
	// The first question for a coordinator creates the topic of the offsets, and
	// offsets are answered only once that is loaded.
	_, err = admin.FetchOffsets(ctx, "arroyo-readiness")
	return err
}
