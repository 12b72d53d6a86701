package benchtest

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// readBare is the loop that one writes with kgo alone: at least once, with a
// commit each second.
func readBare(ctx context.Context, s source, group string) (t tally, used usage, err error) {
	meter := startMeter(s)
	client, err := kgo.NewClient(append(s.options(),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
	)...)
	if err != nil {
		return t, used, err
	}
	defer client.Close()
	for committed := time.Now(); t.records < s.records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return t, used, err
		}
		if t.records == 0 && !fetches.Empty() {
			meter.first()
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				if v := binary.BigEndian.Uint64(r.Value); wanted(v) {
					t.add(v)
				}
			}
		})
		if now := time.Now(); now.Sub(committed) >= time.Second {
			committed = now
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				return t, used, err
			}
		}
	}
	used = meter.stop()
	return t, used, client.CommitUncommittedOffsets(ctx)
}
