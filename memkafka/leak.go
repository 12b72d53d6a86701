package memkafka

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// leakTimeout bounds how long the end of a test waits for a client that it closes itself.
const leakTimeout = 5 * time.Second

// clientHooks tells the broker which clients a host has.
type clientHooks struct {
	broker *Broker
	host   *host
}

var (
	_ kgo.HookNewClient    = (*clientHooks)(nil)
	_ kgo.HookClientClosed = (*clientHooks)(nil)
)

func (h *clientHooks) OnNewClient(client *kgo.Client) {
	h.broker.mu.Lock()
	defer h.broker.mu.Unlock()
	h.broker.clients[client] = h.host
}

func (h *clientHooks) OnClientClosed(client *kgo.Client) {
	h.broker.mu.Lock()
	defer h.broker.mu.Unlock()
	delete(h.broker.clients, client)
}

// endWith ends the broker with its test: it names clients that were left running, and ends them.
func (b *Broker) endWith(t testing.TB) {
	t.Helper()
	b.mu.Lock()
	closed := b.closed // by the test, which then is on its own
	left := maps.Clone(b.clients)
	b.mu.Unlock()
	if !closed {
		for _, client := range slices.SortedFunc(maps.Keys(left), func(x, y *kgo.Client) int {
			return slices.Compare(left[x].ip, left[y].ip)
		}) {
			b.endLeft(t, client, left[client])
		}
	}
	if t.Failed() {
		t.Logf("memkafka: what happened at the broker:\n%s", b.Log())
	}
	b.Close()
}

func (b *Broker) endLeft(t testing.TB, client *kgo.Client, h *host) {
	t.Helper()
	name := describeLeft(client, h)
	t.Errorf("memkafka: %s is still running at the end of the test: before the test function returns, stop what uses it "+
		"(memkafka.Start does that by itself) and close it", name)
	b.log.add("%s was left running; it is closed", name)
	h.setCut(false) // it ends sooner if it can leave its group
	h.setHole(false)
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.CloseAllowingRebalance()
	}()
	// Its poll loop may go on, and with kgo.BlockRebalanceOnPoll hold up the end by each poll.
	allow := time.NewTicker(10 * time.Millisecond)
	defer allow.Stop()
	timeout := time.NewTimer(leakTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-done:
			return
		case <-allow.C:
			client.AllowRebalance()
		case <-timeout.C:
			t.Errorf("memkafka: %s can't be closed within %v: one of its callbacks (kgo.OnPartitionsRevoked?) does not return", name, leakTimeout)
			return
		}
	}
}

func describeLeft(client *kgo.Client, h *host) string {
	id, _ := client.OptValue(kgo.ClientID).(string)
	name := describeClient(cmp.Or(id, "kgo"), h)
	if group, _ := client.OptValue(kgo.ConsumerGroup).(string); group != "" {
		name += fmt.Sprintf(", a member of group %q,", group)
	}
	return name
}
