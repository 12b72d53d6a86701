package memkafka

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// legalTopic applies Kafka's rules for names of topics.
func legalTopic(name string) bool {
	illegal := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	return name != "" && name != "." && name != ".." && len(name) <= 249 && !strings.ContainsFunc(name, illegal)
}

// refuseIllegalTopics answers INVALID_TOPIC_EXCEPTION where Kafka does: to clients that create topics or ask for metadata
// of them. kfake creates topics of any name, and says of those which it has not that they are unknown.
//
// The answer is a kfake fault for each such name that somebody came up with: so legal ones in the same request are dealt
// with as usual.
func refuseIllegalTopics(c *kfake.Cluster, controller int32) {
	refused := make(map[string]bool) // controls run one at a time
	refuse := func(name string) {
		if refused[name] || legalTopic(name) || name == "" { // a fault for the topic "" would be one for all
			return
		}
		refused[name] = true
		c.Fault(kfake.Fault{
			Keys:  []kmsg.Key{kmsg.CreateTopics, kmsg.Metadata},
			Topic: name,
			Err:   kerr.InvalidTopicException,
			Count: -1,
		})
	}
	c.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		for _, t := range kreq.(*kmsg.MetadataRequest).Topics {
			if t.Topic != nil {
				refuse(*t.Topic)
			}
		}
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.CreateTopicsRequest)
		nameless := false
		for _, t := range req.Topics {
			refuse(t.Topic)
			nameless = nameless || t.Topic == ""
		}
		if !nameless || c.CurrentNode() != controller {
			return nil, nil, false
		}
		// Kafka would create the legal ones. Nobody is known to mix them.
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic = t.Topic
			rt.ErrorCode = kerr.InvalidRequest.Code
			if !legalTopic(t.Topic) {
				rt.ErrorCode = kerr.InvalidTopicException.Code
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}
