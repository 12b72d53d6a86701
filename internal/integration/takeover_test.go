package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
)

// childSession is how long a killed classic member keeps its partitions.
const childSession = 6 * time.Second

// 100,000 records over 8 partitions; three processors join and leave while
// they are read, and a fourth in a process of its own is killed. Every record
// is processed; twice only if the killed one was one of the two.
func TestChurnAndSIGKILL(t *testing.T) {
	const records = 100_000
	c := newCluster(t, 8)
	l := newLedger()
	c.produce(t, records/2)
	pause := 20 * time.Microsecond

	a := c.start(t, "a", l, pause, nil)
	eventually(t, "a processes", time.Minute, func() bool { return l.by("a") > 1000 })
	killed := c.startChild(t, "cooperative", "killed", l)
	b := c.start(t, "b", l, pause, nil)
	eventually(t, "the child and b process", time.Minute, func() bool { return l.by("killed") > 1000 && l.by("b") > 1000 })

	go c.produce(t, records/2)
	eventually(t, "half is done", 2*time.Minute, func() bool { return l.len() > records/2 })
	killed.kill()
	a.stop(t)
	third := c.start(t, "c", l, pause, nil)
	eventually(t, "c processes", time.Minute, func() bool { return l.by("c") > 1000 })
	b.stop(t)
	eventually(t, "all is committed", 2*time.Minute, func() bool { return sum(c.committed(t)) == records })
	third.stop(t)

	for p := range int32(8) {
		if got := c.committed(t)[p]; got != records/8 {
			t.Errorf("partition %d: committed %d, want the log's end %d", p, got, records/8)
		}
		for offset := range int64(records / 8) {
			by := l.seen[record{p, offset}]
			if len(by) == 0 {
				t.Errorf("lost: partition %d offset %d", p, offset)
			}
			if len(by) > 2 || len(by) == 2 && by[0] != "killed" && by[1] != "killed" {
				t.Errorf("partition %d offset %d was processed by %v", p, offset, by)
			}
		}
	}
	t.Logf("records by a: %d, b: %d, c: %d, killed: %d", l.by("a"), l.by("b"), l.by("c"), l.by("killed"))
}

// Members come and go under each protocol; nothing is lost or done twice.
func TestJoinAndLeave(t *testing.T) {
	for protocol, opts := range protocols {
		t.Run(protocol, func(t *testing.T) {
			const records = 3000
			produced := records
			c := newCluster(t, 6)
			l := newLedger()
			first := c.start(t, "first", l, time.Millisecond, opts)
			c.produce(t, records)
			eventually(t, "first processes", time.Minute, func() bool { return l.by("first") > 100 })
			second := c.start(t, "second", l, time.Millisecond, opts)
			eventually(t, "second joins", time.Minute, func() bool { return c.members(t) == 2 })
			for l.by("second") < 100 && !t.Failed() {
				c.produce(t, 60)
				produced += 60
				time.Sleep(50 * time.Millisecond)
			}
			second.stop(t)
			c.produce(t, records-produced%records)
			produced += records - produced%records
			eventually(t, "all is committed", time.Minute, func() bool { return sum(c.committed(t)) == int64(produced) })
			first.stop(t)
			if n := c.members(t); n != 0 {
				t.Errorf("%d members are left in the group", n)
			}
			for r, by := range l.seen {
				if len(by) != 1 {
					t.Errorf("partition %d offset %d was processed by %v", r.partition, r.offset, by)
				}
			}
			if n := l.len(); n != produced {
				t.Errorf("%d records were processed, want %d", n, produced)
			}
		})
	}
}

// A killed member's partitions go to the other one after its session, and it
// goes on from the committed offsets. (Under KIP-848 the session timeout is
// the broker's, 45 s.)
func TestMemberIsKilled(t *testing.T) {
	for _, protocol := range []string{"cooperative", "eager"} {
		t.Run(protocol, func(t *testing.T) {
			const records = 8000
			c := newCluster(t, 4)
			l := newLedger()
			child := c.startChild(t, protocol, "killed", l)
			eventually(t, "the child joins", time.Minute, func() bool { return c.members(t) == 1 })
			c.produce(t, records/2)
			eventually(t, "the child processes", time.Minute, func() bool { return l.by("killed") > 100 })
			survivor := c.start(t, "survivor", l, 0, protocols[protocol])
			eventually(t, "both are members", time.Minute, func() bool { return c.members(t) == 2 })
			child.kill()
			c.produce(t, records/2)
			eventually(t, "all is committed", time.Minute, func() bool { return sum(c.committed(t)) == records })
			survivor.stop(t)
			if n := l.len(); n != records {
				t.Errorf("%d records were processed, want %d", n, records)
			}
		})
	}
}

// Where nothing is committed, the start is committed before anything is read.
func TestStartIsCommitted(t *testing.T) {
	c := newCluster(t, 3)
	m := c.start(t, "m", newLedger(), 0, nil)
	eventually(t, "the start is committed", time.Minute, func() bool {
		return fmt.Sprint(c.committed(t)) == "map[0:0 1:0 2:0]"
	})
	m.stop(t)
}

// A drain during a classic join sends its last commit and its leave around
// kgo; the real broker takes both at once.
func TestDrainDuringAJoin(t *testing.T) {
	for _, protocol := range []string{"cooperative", "eager"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCluster(t, 2)
			c.produce(t, 10)
			open := func() *arroyo.Consumer {
				consumer, err := arroyo.NewConsumer(c.group, []string{c.topic}, arroyo.ClientOptions(c.kafka.ClientOptions()...),
					arroyo.ClientOptions(protocols[protocol]...), arroyo.ClientOptions(kgo.HeartbeatInterval(500*time.Millisecond)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { consumer.Close() })
				return consumer
			}
			// The slow peer never lets its partitions go, and never joins again.
			slow := open()
			held := make(chan struct{})
			go func() {
				for {
					ev, err := slow.Poll(t.Context())
					if err != nil {
						return
					}
					switch ev := ev.(type) {
					case *arroyo.Revoked:
						ev.Hold()
						close(held)
					case *arroyo.Assigned:
					}
				}
			}()
			eventually(t, "the slow peer joins", time.Minute, func() bool { return c.members(t) == 1 })
			other := open()
			drained := make(chan struct{})
			go func() {
				defer close(drained)
				for {
					ev, err := other.Poll(t.Context())
					if err != nil {
						t.Errorf("Poll: %v", err)
						return
					}
					if _, ok := ev.(*arroyo.Closed); ok {
						return
					}
				}
			}()
			<-held
			eventually(t, "the other member has asked to join", time.Minute, func() bool { return c.members(t) == 2 })
			began := time.Now()
			other.Drain(5 * time.Second)
			<-drained
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("the drain took %v", took)
			}
			eventually(t, "the group knows that it left", 10*time.Second, func() bool { return c.members(t) == 1 })
		})
	}
}
