package chain

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo/internal/realkafka"
)

var total = flag.Int("records", 200_000, "how many records pass the chain under each protocol")

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(realkafka.MainWith(m, realkafka.Options{Config: map[string]string{
		// Under KIP-848 these are the broker's; the defaults are 45 s and 5 s.
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.session.timeout.ms":        fmt.Sprint(session.Milliseconds()),
		"group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.heartbeat.interval.ms":     "500",
	}}))
}

// protocols are the ways in which a group can rebalance.
var protocols = map[string][]kgo.Opt{
	"cooperative": nil,
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"kip848":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

// partitions of the four topics.
var partitions = []int{6, 4, 8, 4}

const levels = 3

// job is a chain of topics and groups.
type job struct {
	kafka    *realkafka.Kafka
	client   *kgo.Client
	admin    *kadm.Client
	protocol string
	topics   []string
	groups   []string
	members  [levels][]*member // that are to be there
	all      []*member
}

// Every record arrives, in the order of its key; twice only if who had done it
// was killed or cut off before it could commit.
func TestChain(t *testing.T) {
	kafka := realkafka.Start(t)
	for _, protocol := range []string{"eager", "cooperative", "kip848"} {
		t.Run(protocol, func(t *testing.T) {
			j := newJob(t, kafka, protocol)
			j.run(t)
			if !t.Failed() {
				j.check(t)
			}
		})
	}
}

func newJob(t *testing.T, kafka *realkafka.Kafka, protocol string) *job {
	t.Helper()
	client, err := kgo.NewClient(append(kafka.ClientOptions(), kgo.MetadataMinAge(100*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	j := &job{kafka: kafka, client: client, admin: kadm.NewClient(client), protocol: protocol}
	for _, n := range partitions {
		j.topics = append(j.topics, kafka.Topic(t, n))
	}
	for range levels {
		j.groups = append(j.groups, kafka.Group(t))
	}
	return j
}

// join starts a member of the level.
func (j *job) join(t *testing.T, level int) {
	t.Helper()
	m := startMember(t, j.kafka.Brokers()[0], order{
		Life:     fmt.Sprintf("%d-%d", level+1, len(j.all)),
		Protocol: j.protocol,
		Level:    level,
		Group:    j.groups[level],
		From:     j.topics[level],
		To:       j.topics[level+1],
	})
	j.members[level] = append(j.members[level], m)
	j.all = append(j.all, m)
}

// oldest takes the member that is there longest.
func (j *job) oldest(level int) *member {
	m := j.members[level][0]
	j.members[level] = j.members[level][1:]
	return m
}

const keys = 500

// produce fills the first topic, evenly over the time. The error is for the
// test's goroutine.
func (j *job) produce(ctx context.Context, over time.Duration) error {
	const tick = 20 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	failed := make(chan error, 1)
	began := time.Now()
	for n := 0; n < *total; {
		select {
		case <-ticker.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		due := int(float64(*total) * min(1, float64(time.Since(began))/float64(over)))
		for ; n < due; n++ {
			r := &kgo.Record{Topic: j.topics[0], Key: fmt.Appendf(nil, "k%d", n%keys), Value: fmt.Append(nil, n/keys)}
			j.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
	}
	if err := j.client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// step is something that happens to the chain.
type step struct {
	what string
	do   func(*testing.T, *job)
}

func join(level int) step {
	return step{fmt.Sprintf("one more member of level %d", level+1), func(t *testing.T, j *job) { j.join(t, level) }}
}

func kill(level int) step {
	return step{fmt.Sprintf("SIGKILL on level %d", level+1), func(_ *testing.T, j *job) { j.oldest(level).kill() }}
}

func leave(level int) step {
	return step{fmt.Sprintf("a member of level %d leaves", level+1), func(t *testing.T, j *job) { j.oldest(level).leave(t) }}
}

func cutFor(level int, d time.Duration) step {
	return step{fmt.Sprintf("a member of level %d is cut off for %v", level+1, d), func(_ *testing.T, j *job) {
		m := j.members[level][len(j.members[level])-1]
		m.proxy.Cut()
		time.AfterFunc(d, m.proxy.Heal)
	}}
}

func holeFor(level int, d time.Duration) step {
	return step{fmt.Sprintf("nothing gets through to a member of level %d for %v", level+1, d), func(_ *testing.T, j *job) {
		m := j.members[level][len(j.members[level])-1]
		m.proxy.BlackHole()
		time.AfterFunc(d, m.proxy.Heal)
	}}
}

var restart = step{"the broker is restarted", func(t *testing.T, j *job) { j.kafka.Restart(t) }}

var resetAll = step{"all connections are reset", func(_ *testing.T, j *job) {
	for _, ms := range j.members {
		for _, m := range ms {
			m.proxy.Cut()
			m.proxy.Heal()
		}
	}
}}

// script is what happens, a step each second or so.
var script = []step{
	join(0), kill(1), join(1), cutFor(2, 2*time.Second), kill(0), join(0), leave(0),
	restart,
	join(2), kill(2), holeFor(1, session+2*time.Second), leave(2), resetAll, join(2), kill(0), join(0),
	cutFor(0, session+2*time.Second), leave(1), join(1), kill(2), join(2),
	restart,
	resetAll, leave(0), join(0), kill(1), join(1), kill(2), join(2),
}

const (
	pace   = 800 * time.Millisecond
	enough = 2 * time.Minute // for what has to happen at last
)

func (j *job) run(t *testing.T) {
	began := time.Now()
	for level := range levels {
		j.join(t, level)
		j.join(t, level)
	}
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	produced := make(chan error, 1)
	go func() { produced <- j.produce(ctx, time.Duration(len(script))*pace) }()
	for _, s := range script {
		time.Sleep(pace)
		t.Logf("%5.1fs %s", time.Since(began).Seconds(), s.what)
		s.do(t, j)
		if j.accidents(t) {
			t.FailNow()
		}
	}
	if err := <-produced; err != nil {
		t.Fatalf("produce: %v", err)
	}
	t.Logf("%5.1fs all is produced", time.Since(began).Seconds())
	for level := range levels {
		j.catchUp(t, level)
		t.Logf("%5.1fs level %d has committed all", time.Since(began).Seconds(), level+1)
	}
	for _, ms := range j.members {
		for _, m := range ms {
			m.leave(t)
		}
	}
	for _, m := range j.all {
		m.left(t)
	}
	j.accidents(t)
	t.Logf("%5.1fs all have left", time.Since(began).Seconds())
}

// catchUp waits until the level has committed what is in its topic. Those
// before it have.
func (j *job) catchUp(t *testing.T, level int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		behind, err := j.behind(t.Context(), level)
		if err == nil && len(behind) == 0 {
			return
		}
		if j.accidents(t) {
			t.FailNow()
		}
		if time.Since(began) > enough {
			t.Fatalf("level %d has not committed all after %v: %s, %v", level+1, enough, strings.Join(behind, ", "), err)
		}
	}
}

// accidents reports members that ended as they should not.
func (j *job) accidents(t *testing.T) bool {
	t.Helper()
	found := false
	for _, m := range j.all {
		if how := m.accident(); how != "" {
			t.Errorf("%s ended with: %s", m.Life, how)
			found = true
		}
	}
	return found
}

func (j *job) behind(ctx context.Context, level int) (behind []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, enough/4)
	defer cancel()
	topic := j.topics[level]
	ends, err := j.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	committed, err := j.admin.FetchOffsets(ctx, j.groups[level])
	if err != nil {
		return nil, err
	}
	ends.Each(func(end kadm.ListedOffset) {
		at, ok := committed.Lookup(topic, end.Partition)
		if end.Offset > 0 && (!ok || at.At < end.Offset) {
			behind = append(behind, fmt.Sprintf("partition %d is at %d of %d", end.Partition, at.At, end.Offset))
		}
	})
	return behind, nil
}
