package memkafka

import (
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// endJoin ends the join of a classic group, as kfake does when its rebalance timeout is over. kfake has no method for
// that, so this lets its timer fire, on the goroutine that owns its state. If it is not what it was, the join goes on.
func (b *Broker) endJoin(group string) {
	release, err := b.use()
	if err != nil {
		return // closed
	}
	defer release()
	_ = inGroup(b.cluster, group, func(g reflect.Value) {
		if timer := inside(g, "tRebalance").Interface().(*time.Timer); timer != nil {
			timer.Reset(0)
		}
	})
}

// inGroup calls f with kfake's struct of a group, if there is one.
func inGroup(cluster *kfake.Cluster, group string, f func(g reflect.Value)) (err error) {
	admin, err := adminOf(cluster)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	admin <- func() {
		defer close(done)
		defer notKnown(&err)
		groups := inside(inside(reflect.ValueOf(cluster).Elem(), "groups"), "gs")
		if g := groups.MapIndex(reflect.ValueOf(group)); g.IsValid() {
			f(g.Elem())
		}
	}
	<-done
	return err
}
