package arroyo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestNewConsumerRefusesBadInput(t *testing.T) {
	for _, tt := range []struct {
		name   string
		group  string
		topics []string
		opts   []kgo.Opt
		say    string
	}{
		{"empty group", "", []string{"a"}, nil, "give the consumer group's name"},
		{"no topics", "g", nil, nil, "give at least one"},
		{"empty topic", "g", []string{"a", ""}, nil, "topic's name is empty"},
		{"no time for a rebalance", "g", []string{"a"}, []kgo.Opt{kgo.RebalanceTimeout(8 * time.Second)}, "leaves no time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := arroyo.NewConsumer(tt.group, tt.topics, arroyo.ClientOptions(tt.opts...))
			var bad *arroyo.OptionError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %v, want an OptionError that says %q", err, tt.say)
			}
		})
	}
	if _, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(kgo.SeedBrokers())); err == nil {
		t.Error("a client without brokers was accepted")
	}
}

func TestNewConsumerRefusesOwnedOptions(t *testing.T) {
	hook := func(context.Context, *kgo.Client, map[string][]int32) {}
	for option, opt := range map[string]kgo.Opt{
		"kgo.ConsumerGroup":        kgo.ConsumerGroup("other"),
		"kgo.WithContext":          kgo.WithContext(context.Background()),
		"kgo.AutoCommitMarks":      kgo.AutoCommitMarks(),
		"kgo.GreedyAutoCommit":     kgo.GreedyAutoCommit(),
		"kgo.BlockRebalanceOnPoll": kgo.BlockRebalanceOnPoll(),
		"kgo.ConsumeTopics":        kgo.ConsumeTopics("other"),
		"kgo.ConsumeRegex":         kgo.ConsumeRegex(),
		"kgo.ConsumePartitions":    kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"a": {0: kgo.NewOffset()}}),
		"kgo.ShareGroup":           kgo.ShareGroup("other"),
		"kgo.ConsumeStartOffset":   kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()),
		"kgo.ConsumeResetOffset":   kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()),
		"kgo.TransactionalID":      kgo.TransactionalID("x"),
		"kgo.OnPartitionsAssigned": kgo.OnPartitionsAssigned(hook),
		"kgo.OnPartitionsRevoked":  kgo.OnPartitionsRevoked(hook),
		"kgo.OnPartitionsLost":     kgo.OnPartitionsLost(hook),
		"kgo.AdjustFetchOffsetsFn": kgo.AdjustFetchOffsetsFn(func(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return m, nil
		}),
	} {
		t.Run(option, func(t *testing.T) {
			_, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(opt))
			var owned *arroyo.OwnedOptionError
			if !errors.As(err, &owned) || !strings.Contains(owned.Option, option) || owned.Instead == "" {
				t.Errorf("got %v, want an OwnedOptionError that names %s and what to do", err, option)
			}
		})
	}
}

func TestNewConsumerAcceptsWhatIsTheUsers(t *testing.T) {
	c, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(
		kgo.SeedBrokers("localhost:1"), kgo.ClientID("me"), kgo.InstanceID("i"), kgo.Rack("r"),
		kgo.SessionTimeout(10*time.Second), kgo.FetchMaxWait(time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer(), kgo.WithHooks(struct{ kgo.HookNewClient }{newClientHook{}}),
	))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Client().OptValue(kgo.FetchMaxWait); got != time.Second {
		t.Errorf("FetchMaxWait is %v, want the user's 1s", got)
	}
	c.Close()
}

type newClientHook struct{}

func (newClientHook) OnNewClient(*kgo.Client) {}

// The defaults are those that ClientOptions tells of.
func TestClientDefaults(t *testing.T) {
	c, err := arroyo.NewConsumer(group, []string{topic})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for name, d := range map[string]struct{ got, want any }{
		"FetchMaxWait":   {c.Client().OptValue(kgo.FetchMaxWait), 250 * time.Millisecond},
		"FetchMaxBytes":  {c.Client().OptValue(kgo.FetchMaxBytes), int32(16 << 20)},
		"RequestRetries": {c.Client().OptValue(kgo.RequestRetries), int64(80)},
	} {
		if d.got != d.want {
			t.Errorf("%s is %v, want %v", name, d.got, d.want)
		}
	}
}

func TestNewProcessorRefusesBadInput(t *testing.T) {
	c, err := arroyo.NewConsumer("g", []string{"a"}, arroyo.ClientOptions(kgo.SeedBrokers("localhost:1"), kgo.RebalanceTimeout(30*time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pipeline := strategies.Noop[*kgo.Record]()
	for _, tt := range []struct {
		name     string
		consumer *arroyo.Consumer
		pipeline arroyo.Strategy[*kgo.Record]
		opt      arroyo.ProcessorOption
		say      string
	}{
		{"no consumer", nil, pipeline, quiet, "NewConsumer"},
		{"no pipeline", c, nil, quiet, "first step"},
		{"DrainTimeout above the budget", c, pipeline, arroyo.DrainTimeout(22*time.Second + 1), "raise kgo.RebalanceTimeout"},
		{"negative DrainTimeout", c, pipeline, arroyo.DrainTimeout(-1), "not positive"},
		{"no CommitInterval", c, pipeline, arroyo.CommitInterval(0), "not positive"},
		{"no MaxInFlight", c, pipeline, arroyo.MaxInFlight(0), "not positive"},
		{"no MaxInFlightBytes", c, pipeline, arroyo.MaxInFlightBytes(0), "not positive"},
		{"a bound of partitions", c, pipeline, arroyo.MaxPartitionInFlight(1), "NewPartitionedProcessor"},
		{"a bound of partitions in bytes", c, pipeline, arroyo.MaxPartitionInFlightBytes(1), "NewPartitionedProcessor"},
		{"no MaxPartitionInFlight", c, pipeline, arroyo.MaxPartitionInFlight(0), "not positive"},
		{"no MaxPartitionInFlightBytes", c, pipeline, arroyo.MaxPartitionInFlightBytes(0), "not positive"},
		{"negative CommitEvery", c, pipeline, arroyo.CommitEvery(-1), "negative"},
		{"no StallAfter", c, pipeline, arroyo.StallAfter(0), "not positive"},
		{"a hook that is none", c, pipeline, arroyo.Hooks("hello"), "string has none of the methods"},
		{"nil Logger", c, pipeline, arroyo.Logger(nil), "slog.Default"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := arroyo.NewProcessor(tt.consumer, tt.pipeline, tt.opt)
			var bad *arroyo.OptionError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.say) {
				t.Errorf("got %v, want an OptionError that says %q", err, tt.say)
			}
		})
	}
	var bad *arroyo.OptionError
	if _, err := arroyo.NewPartitionedProcessor(c, nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), "makes a partition's pipeline") {
		t.Errorf("no function: %v", err)
	}
	if _, err := arroyo.NewProcessor(c, pipeline, arroyo.DrainTimeout(22*time.Second)); err != nil {
		t.Errorf("a DrainTimeout of the whole budget: %v", err)
	}
}
