package memkafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var illegalNames = []string{".", "..", "a b", "a/b", "ä", "a\x00", strings.Repeat("x", 250)}

func TestIllegalTopicNames(t *testing.T) {
	insideAndOutside(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Brokers(3))
		client := newClient(t, broker)
		create := func(names ...string) []string {
			t.Helper()
			req := kmsg.NewPtrCreateTopicsRequest()
			for _, name := range names {
				rt := kmsg.NewCreateTopicsRequestTopic()
				rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
				req.Topics = append(req.Topics, rt)
			}
			resp, err := req.RequestWith(t.Context(), client)
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Topics) != len(names) {
				t.Fatalf("%d answers for %d topics", len(resp.Topics), len(names))
			}
			var refused []string
			for _, rt := range resp.Topics {
				switch err := kerr.ErrorForCode(rt.ErrorCode); err {
				case nil:
				case kerr.InvalidTopicException:
					refused = append(refused, rt.Topic)
				default:
					t.Errorf("%q: %v", rt.Topic, err)
				}
			}
			return refused
		}
		for _, name := range append([]string{""}, illegalNames...) {
			for range 2 {
				if got := create(name); !slices.Equal(got, []string{name}) {
					t.Errorf("%q was not refused", name)
				}
			}
		}
		long := strings.Repeat("x", 249)
		if got := create("a.b-C_9", "...", "a b", long, "!"); !slices.Equal(got, []string{"a b", "!"}) {
			t.Errorf("refused %q", got)
		}
		broker.Produce("a.b-C_9", "a")
		broker.Produce("...", "a")
		broker.Produce(long, "a")

		req := kmsg.NewPtrMetadataRequest()
		for _, name := range append([]string{"a.b-C_9", "unknown"}, illegalNames...) {
			rt := kmsg.NewMetadataRequestTopic()
			rt.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, rt)
		}
		resp, err := req.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		for _, rt := range resp.Topics {
			want := kerr.InvalidTopicException.Code
			switch *rt.Topic {
			case "a.b-C_9":
				want = 0
			case "unknown":
				want = kerr.UnknownTopicOrPartition.Code
			}
			if rt.ErrorCode != want {
				t.Errorf("metadata of %q: %v", *rt.Topic, kerr.ErrorForCode(rt.ErrorCode))
			}
		}
	})
}
