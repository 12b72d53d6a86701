package memkafka

import (
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// namesBrokers tells whether a response to such a request may have addresses of brokers in it.
func namesBrokers(kind, version int16) bool {
	switch kmsg.Key(kind) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.ShareFetch, kmsg.ShareAcknowledge:
		return true
	case kmsg.Produce:
		return version >= 10 // KIP-951: where a leader has gone
	case kmsg.Fetch:
		return version >= 16
	}
	return false
}

// readdressBrokers replaces addresses by those that addrs has for their ports. It returns whether there were any.
func readdressBrokers(resp kmsg.Response, addrs map[int]*net.TCPAddr) bool {
	any := false
	replace := func(host *string, port *int32) {
		if addr := addrs[int(*port)]; addr != nil {
			*host, *port = addr.IP.String(), int32(addr.Port)
			any = true
		}
	}
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			replace(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		replace(&resp.Host, &resp.Port)
		for i := range resp.Coordinators {
			replace(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port)
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			replace(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.ProduceResponse:
		for i := range resp.Brokers {
			replace(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.FetchResponse:
		for i := range resp.Brokers {
			replace(&resp.Brokers[i].Host, &resp.Brokers[i].Port)
		}
	case *kmsg.ShareFetchResponse:
		for i := range resp.NodeEndpoints {
			replace(&resp.NodeEndpoints[i].Host, &resp.NodeEndpoints[i].Port)
		}
	case *kmsg.ShareAcknowledgeResponse:
		for i := range resp.NodeEndpoints {
			replace(&resp.NodeEndpoints[i].Host, &resp.NodeEndpoints[i].Port)
		}
	}
	return any
}
