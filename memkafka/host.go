package memkafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Host is a machine in the broker's network, on which clients run, with an address of its own. What happens to it happens
// to all clients that have its options, and to no others. Its methods may be called from any goroutine, and before there
// is any client.
type Host struct {
	broker *Broker
	host   *host
}

// Host adds a host to the network.
func (b *Broker) Host() *Host { return &Host{b, b.network.newHost(ordinary)} }

// ClientOptions returns what a kgo.Client on the host needs to reach the broker: kgo.SeedBrokers, kgo.Dialer, and hooks
// by which the broker knows of clients that are not closed. Append your own options to them.
//
// Dials give up after 10 s, as those of kgo's own dialer do.
func (h *Host) ClientOptions() []kgo.Opt {
	return append(h.broker.clientOptions(h.host), kgo.WithHooks(&clientHooks{h.broker, h.host}))
}

// Cut takes the host off the network: its connections are reset and dials refused, so that its clients know at once. The
// broker notices only what is missing, heartbeats for one.
func (h *Host) Cut() {
	h.broker.log.add("host %s is cut off", h.host.ip)
	h.host.cutOff()
	h.host.setHole(false)
}

// BlackHole lets nothing through any more, to the host or from it, and nobody is told: connections stay open, requests
// and answers do not arrive, dials hang until they time out. What is under way by then arrives after [Host.Heal], if the
// client has not given the connection up.
func (h *Host) BlackHole() {
	h.broker.log.add("host %s is in a black hole", h.host.ip)
	h.host.setHole(true)
	h.host.setCut(false)
}

// Slow makes everything that is sent to the host, or by it, arrive d later, virtual time in a bubble: a request and its
// answer take 2d more, and so does a dial. 0 is no latency, which is the default. It fails if d is negative.
func (h *Host) Slow(d time.Duration) {
	h.broker.t.Helper()
	if d < 0 {
		h.broker.fail("slow down a host by %v: give 0 or more", d)
	}
	h.broker.log.add("host %s has a latency of %v", h.host.ip, d)
	h.host.latency.Store(int64(d))
}

// Heal undoes Cut, BlackHole and Slow. Connections that were reset stay so: clients dial anew, kgo within seconds.
func (h *Host) Heal() {
	h.broker.log.add("host %s is healed", h.host.ip)
	h.host.latency.Store(0)
	h.host.setCut(false)
	h.host.setHole(false)
}
