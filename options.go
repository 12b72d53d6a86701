package arroyo

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ConsumerOption configures a Consumer.
type ConsumerOption func(*consumerConfig)

type consumerConfig struct {
	client         []kgo.Opt
	endOfPartition bool
	committed      bool
	regex          bool
	groupSession   time.Duration
	start          StartPolicy
	reset          *StartPolicy
	sync           *synchronization
	recycle        bool
}

// EndOfPartitionEvents makes Poll return EndOfPartition events.
func EndOfPartitionEvents() ConsumerOption {
	return func(c *consumerConfig) { c.endOfPartition = true }
}

// CommittedEvents makes Poll return Committed events.
func CommittedEvents() ConsumerOption {
	return func(c *consumerConfig) { c.committed = true }
}

// GroupSessionTimeout says what the brokers' group.consumer.session.timeout.ms
// is, or the group's own. Under KIP-848 the client is not told, but has to know
// when it can have lost its partitions without having heard of it. Defaults to
// 45 s, as on the brokers. It has no meaning under the classic protocols, where
// kgo.SessionTimeout says it.
func GroupSessionTimeout(d time.Duration) ConsumerOption {
	return func(c *consumerConfig) { c.groupSession = d }
}

// Regex takes the topics given to NewConsumer as regular expressions: all
// topics that match one are read, also those that are made later. With it the
// group is joined when the consumer is made, and not by the first Poll; and a
// topic that does not exist is no error.
func Regex() ConsumerOption {
	return func(c *consumerConfig) { c.regex = true }
}

// ClientOptions configures the kgo client: brokers, TLS, SASL, timeouts,
// balancers and the rest. It may be given several times; later options win.
//
// Arroyo's own defaults where kgo's differ: kgo.FetchMaxWait is 250 ms,
// because a partition that is resumed waits for the fetch in flight;
// kgo.FetchMaxBytes is 16 MiB, because what is larger leaves the processor's
// caches; kgo.RetryBackoffFn goes up to a second only, for up to 80 times
// (kgo.RequestRetries), so that what waits goes on when brokers are back. The
// protocol is cooperative-sticky unless kgo.Balancers or
// kgo.ServerSideBalancer (KIP-848) says otherwise. NewConsumer refuses the
// options that Arroyo has to set itself with an *OwnedOptionError.
//
// A kgo.Dialer should have a timeout: kgo passes it a context that lasts as
// long as the client.
func ClientOptions(opts ...kgo.Opt) ConsumerOption {
	return func(c *consumerConfig) { c.client = append(c.client, opts...) }
}

// defaultFetchMaxWait bounds how long a broker holds a fetch for which it has
// no records, and so what a resumed partition waits at the most.
const defaultFetchMaxWait = 250 * time.Millisecond

// defaultFetchMaxBytes bounds a fetch of a broker. With many partitions kgo's
// 50 MiB cost a sixth of the throughput, and several times the memory.
const defaultFetchMaxBytes = 16 << 20

func (c *Consumer) newClient(root context.Context, group string, user []kgo.Opt) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.WithContext(root),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(c.onAssigned),
		kgo.OnPartitionsRevoked(c.onRevoked),
		kgo.OnPartitionsLost(c.onLost),
		kgo.OnOffsetsFetched(c.offsetsFetched),
		kgo.AdjustFetchOffsetsFn(c.adjustOffsets),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(defaultFetchMaxWait),
		kgo.FetchMaxBytes(defaultFetchMaxBytes),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.RequestRetries(maxRetries),
		kgo.WithHooks(transportHooks{c}, &c.lease),
	}
	if c.config.recycle {
		opts = append(opts, kgo.WithPools(new(pools)))
	}
	if c.config.regex {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(c.topics...))
	}
	client, err := kgo.NewClient(append(opts, user...)...)
	if err != nil {
		return nil, refusal(err, group, user)
	}
	if err := c.checkOwned(client, root, group); err != nil {
		c.endRoot()
		client.Close()
		return nil, err
	}
	return client, nil
}

const (
	minRetryBackoff = 250 * time.Millisecond
	maxRetryBackoff = time.Second
	// As kgo's default, they take more than a minute.
	maxRetries = 80
)

// retryBackoff is how long kgo waits after so many failures of a request in a
// row. Its own default goes up to 5 s, and a commit that is needed at the end of
// a drain would wait as long behind an older one, though the brokers are back.
func retryBackoff(fails int) time.Duration {
	d := minRetryBackoff << min(max(fails-1, 0), 2)
	// Up to a fifth less, so that not all members come at the same time.
	return d - time.Duration(time.Now().UnixNano()%int64(d/5))
}

// refusal tells an option that is wrong in itself from one that contradicts
// what Arroyo sets.
func refusal(err error, group string, user []kgo.Opt) error {
	if kgo.ValidateOpts(append([]kgo.Opt{kgo.ConsumerGroup(group)}, user...)...) == nil {
		return &OwnedOptionError{"kgo.AutoCommitMarks or kgo.GreedyAutoCommit", ownedCommit}
	}
	if kgo.ValidateOpts(user...) == nil {
		return &OwnedOptionError{"kgo.ConsumePartitions or kgo.ShareGroup", "a consumer is a member of the group given to NewConsumer"}
	}
	return fmt.Errorf("arroyo: kgo refuses the client options: %w", err)
}

const (
	ownedCommit = "it commits what is settled; CommitInterval says how often"
	ownedTopics = "give the topics to NewConsumer"
	ownedStart  = "the option Start says where a group starts that has committed nothing"
	ownedHooks  = "rebalances are events of Consumer.Poll"
)

// checkOwned finds the options of ours that the user's options replaced.
func (c *Consumer) checkOwned(client *kgo.Client, root context.Context, group string) error {
	value := client.OptValue
	for _, o := range []struct {
		ours    bool
		option  string
		instead string
	}{
		{value(kgo.ConsumerGroup) == any(group), "kgo.ConsumerGroup", "give the group to NewConsumer"},
		{value(kgo.WithContext) == any(root), "kgo.WithContext", "give the context to Run or Poll"},
		{value(kgo.DisableAutoCommit) == true, "kgo.DisableAutoCommit", ownedCommit},
		{value(kgo.BlockRebalanceOnPoll) == false, "kgo.BlockRebalanceOnPoll", ownedHooks + ", which wait for the application without it"},
		{value(kgo.ConsumeRegex) == any(c.config.regex), "kgo.ConsumeRegex", "use the option Regex"},
		{c.config.regex || len(value(kgo.ConsumeTopics).([]string)) == 0, "kgo.ConsumeTopics", ownedTopics},
		{value(kgo.ConsumeStartOffset) == any(kgo.NewOffset().AtStart()), "kgo.ConsumeStartOffset", ownedStart},
		{value(kgo.ConsumeResetOffset) == any(kgo.NoResetOffset()), "kgo.ConsumeResetOffset", "an offset out of range is an OffsetOutOfRangeError, unless the option ResetOutOfRange says where to go on"},
		{value(kgo.TransactionalID) == any(""), "kgo.TransactionalID", "use another client for transactions"},
		{sameFunc(value(kgo.OnOffsetsFetched), c.offsetsFetched), "kgo.OnOffsetsFetched", ownedStart},
		{sameFunc(value(kgo.AdjustFetchOffsetsFn), c.adjustOffsets), "kgo.AdjustFetchOffsetsFn", ownedStart},
		{c.isOurs(client, kgo.OnPartitionsAssigned), "kgo.OnPartitionsAssigned", ownedHooks},
		{c.isOurs(client, kgo.OnPartitionsRevoked), "kgo.OnPartitionsRevoked", ownedHooks},
		{c.isOurs(client, kgo.OnPartitionsLost), "kgo.OnPartitionsLost", ownedHooks},
	} {
		if !o.ours {
			return &OwnedOptionError{o.option, o.instead}
		}
	}
	return nil
}

func sameFunc(a, b any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

type hookFunc = func(context.Context, *kgo.Client, map[string][]int32)

// probeKey marks the context of isOurs's call of a hook.
type probeKey struct{}

// isOurs finds out whose a group hook is by calling it. kgo wraps these hooks,
// so there is nothing to compare; and it calls them with nothing in it itself
// at every rebalance, so the call is harmless if it is the user's.
func (c *Consumer) isOurs(client *kgo.Client, option any) bool {
	hook, ok := client.OptValue(option).(hookFunc)
	if !ok {
		return false
	}
	var ours bool
	hook(context.WithValue(context.Background(), probeKey{}, &ours), client, nil)
	return ours
}

// probed reports whether a hook was called by isOurs, and answers it. Otherwise
// it waits until the consumer is made: with Regex kgo joins before that.
func (c *Consumer) probed(ctx context.Context) bool {
	ours, ok := ctx.Value(probeKey{}).(*bool)
	if ok {
		*ours = true
		return true
	}
	select {
	case <-c.ready:
		return false
	default:
	}
	select {
	case <-c.ready:
		return false
	case <-c.root.Done():
		return true // it was not made
	}
}
