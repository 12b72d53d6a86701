package memkafka

import (
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// answerLeaderEpochs corrects a defect of kfake as of 2026-09-18. After a leader has moved, kfake answers
// OffsetForLeaderEpoch for the epoch before with "unknown" until a record was produced in the new one. kgo 1.22 takes
// that for data loss and reads the partition again from its start. The right answer is: up to the high watermark nothing
// has changed, or up to where the log was truncated since.
func answerLeaderEpochs(c *kfake.Cluster, t *tap) {
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if t.senderOf(kreq) != nil {
			return nil, nil, false // it may have to fail, which kfake sees to
		}
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, rt := range req.Topics {
			topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
			topic.Topic = rt.Topic
			var id [16]byte
			if info := c.TopicInfo(rt.Topic); info != nil {
				id = info.TopicID
			}
			for _, rp := range rt.Partitions {
				info := c.PartitionInfo(rt.Topic, rp.Partition)
				current := rp.CurrentLeaderEpoch == -1 || info != nil && rp.CurrentLeaderEpoch == info.Epoch
				if info == nil || info.Leader != c.CurrentNode() || !current || rp.LeaderEpoch > info.Epoch {
					return nil, nil, false // an error, which kfake words right
				}
				p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				p.Partition, p.LeaderEpoch = rp.Partition, rp.LeaderEpoch
				p.EndOffset = t.endOf(topicPartition{id, rp.Partition}, rp.LeaderEpoch, info.HighWatermark)
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
}
