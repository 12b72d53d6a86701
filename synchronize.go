package arroyo

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Synchronize makes the consumer read each partition only as far as all of
// these groups have committed it, so that what it acts on has surely been dealt
// with by them. A group that has committed nothing for a partition holds it
// back entirely. The source says how their commits are learned of.
//
// While the source fails, nothing is delivered: the consumer reports Failed,
// and goes on when the source does. If a group is set back by an administrator
// its partitions wait until it has come up again.
func Synchronize(source SyncSource, groups ...string) ConsumerOption {
	return func(c *consumerConfig) { c.sync = &synchronization{source, groups} }
}

type synchronization struct {
	source SyncSource
	groups []string
}

// SyncSource is where Synchronize learns of other groups' commits: made by
// CommitLogTopic or GroupOffsets.
type SyncSource struct {
	topic string        // of the commit log; else
	every time.Duration // how often to ask for the groups' offsets
}

// CommitLogTopic is a commit log (see the option CommitLog): what was committed
// is known within milliseconds. The topic should be compacted; it is read from
// its start, all partitions of it, with a client of its own.
func CommitLogTopic(topic string) SyncSource { return SyncSource{topic: topic} }

// GroupOffsets asks the brokers for the groups' committed offsets again and
// again, after so long: no other topic is needed.
func GroupOffsets(every time.Duration) SyncSource { return SyncSource{every: every} }

func (s *synchronization) check(c *Consumer) error {
	bad := func(reason string) error { return &OptionError{"Synchronize", reason} }
	switch {
	case s.source.topic == "" && s.source.every <= 0:
		return bad("no source: give CommitLogTopic with a topic, or GroupOffsets with a positive interval")
	case len(s.groups) == 0:
		return bad("no groups: give those to follow")
	case slices.Contains(s.groups, ""):
		return bad("a group's name is empty")
	case slices.Contains(s.groups, c.group):
		return bad(fmt.Sprintf("the group %q would wait for itself: give the groups that come before it", c.group))
	case s.source.topic != "" && c.reads(s.source.topic):
		return bad(fmt.Sprintf("the commit log %q is a topic that this consumer reads: give another", s.source.topic))
	}
	return nil
}

// follower knows how far the followed groups are. Consumer.mu guards it.
type follower struct {
	groups []string
	known  bool // all of it is known; until then nothing is delivered
	at     map[string]map[Partition]int64
	since  map[*epochState]time.Time // of epochs that wait: when something was let through last
}

func newFollower(groups []string) *follower {
	f := &follower{groups: groups, at: make(map[string]map[Partition]int64), since: make(map[*epochState]time.Time)}
	for _, g := range groups {
		f.at[g] = make(map[Partition]int64)
	}
	return f
}

// limit returns the offset that a partition may be read up to, and the group
// that it waits for there.
func (f *follower) limit(p Partition) (offset int64, group string) {
	if !f.known {
		return 0, ""
	}
	for i, g := range f.groups {
		if at := f.at[g][p]; i == 0 || at < offset {
			offset, group = at, g
		}
	}
	return offset, group
}

const (
	// What a partition that waits may have parked before it is paused.
	maxParked = 10_000
	// How often the end of its log is asked for then.
	endsEvery = 5 * time.Second
)

// release returns what of a fetched slice may be delivered, and what is parked.
func (f *follower) release(ev *Fetched) (now, parked *Fetched) {
	limit, _ := f.limit(ev.Epoch.Partition)
	n := sort.Search(len(ev.Records), func(i int) bool { return ev.Records[i].Offset >= limit })
	switch {
	case n < len(ev.Records) || len(ev.Records) == 0 && ev.Next > limit:
		if _, waits := f.since[ev.state]; !waits || n > 0 {
			f.since[ev.state] = time.Now()
		}
	default:
		delete(f.since, ev.state)
		return ev, nil
	}
	if n == 0 {
		return nil, ev
	}
	last := ev.Records[n-1]
	part := *ev
	part.Records = ev.Records[:n:n]
	part.next = position{last.Offset + 1, last.LeaderEpoch}
	part.Next = last.Offset + 1
	ev.Records = ev.Records[n:]
	return &part, ev
}

// commits takes what groups have committed. Consumer.mu is not held.
func (c *Consumer) followed(known bool, news map[string]map[Partition]int64) {
	c.mu.Lock()
	for g, at := range news {
		if known := c.follower.at[g]; known != nil {
			maps.Copy(known, at)
		}
	}
	c.follower.known = known
	maps.DeleteFunc(c.follower.since, func(s *epochState, _ time.Time) bool { return s.fenced.Load() })
	c.stream.unparkGated()
	c.stream.stir()
	c.mu.Unlock()
}

// follow keeps the follower up to date until the consumer ends.
func (c *Consumer) follow() {
	source := c.config.sync.source
	for pause := minStartPause; ; pause = min(2*pause, maxStartPause) {
		began := time.Now()
		var err error
		if source.topic != "" {
			err = c.followLog(source.topic)
		} else {
			err = c.followGroups(source.every)
		}
		if c.root.Err() != nil {
			return
		}
		c.followed(false, nil)
		c.mu.Lock()
		c.report("synchronize", Epoch{}, fmt.Errorf("arroyo: the groups that this one follows cannot be followed; nothing is delivered meanwhile: %w", err), isFatal(err))
		c.mu.Unlock()
		if time.Since(began) > maxStartPause {
			pause = minStartPause
		}
		if !c.sleep(c.root, pause) {
			return
		}
	}
}

// following notes that all is known.
func (c *Consumer) following(news map[string]map[Partition]int64) {
	c.followed(true, news)
	c.mu.Lock()
	c.recovered("synchronize")
	c.mu.Unlock()
}

// followGroups asks for committed offsets until that fails.
func (c *Consumer) followGroups(every time.Duration) error {
	admin := kadm.NewClient(c.client)
	for {
		news := make(map[string]map[Partition]int64)
		for _, g := range c.config.sync.groups {
			offsets, err := admin.FetchOffsets(c.root, g)
			if err == nil {
				err = offsets.Error()
			}
			if errors.Is(err, kerr.GroupIDNotFound) {
				offsets, err = nil, nil // it has committed nothing yet
			}
			if err != nil {
				return fmt.Errorf("committed offsets of group %q: %w", g, err)
			}
			news[g] = make(map[Partition]int64)
			offsets.Each(func(o kadm.OffsetResponse) {
				news[g][Partition{o.Topic, o.Partition}] = max(o.At, 0)
			})
		}
		c.mu.Lock()
		for _, at := range c.follower.at {
			clear(at) // what a group has no offset of any more counts as zero
		}
		c.mu.Unlock()
		c.following(news)
		if !c.sleep(c.root, every) {
			return c.root.Err()
		}
	}
}

// followLog reads the commit log until that fails.
func (c *Consumer) followLog(topic string) error {
	opts := make([]kgo.Opt, 0, len(c.config.client)+4)
	for _, opt := range c.config.client {
		if _, ofGroup := opt.(kgo.GroupOpt); !ofGroup {
			opts = append(opts, opt)
		}
	}
	client, err := kgo.NewClient(append(opts,
		kgo.WithContext(c.root),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords(),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	left, err := c.endsOf(client, topic)
	if err != nil {
		return err
	}
	news := make(map[string]map[Partition]int64)
	written := make(entryTimes)
	for {
		if len(left) == 0 {
			// Everything that was there when we began is read. Before that
			// an old entry could let through more than the present one.
			c.following(news)
			clear(news)
		}
		fetches := client.PollFetches(c.root)
		if c.root.Err() != nil {
			return c.root.Err()
		}
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, e := range fetches.Errors() {
			return fmt.Errorf("commit log %s/%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, waits := left[r.Partition]; waits && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			e, err := ReadCommitLogEntry(r)
			if err != nil || !slices.Contains(c.config.sync.groups, e.Group) {
				return // not for us
			}
			if !written.isNews(e, r) {
				return
			}
			if news[e.Group] == nil {
				news[e.Group] = make(map[Partition]int64)
			}
			news[e.Group][e.Partition] = e.Offset
		})
	}
}

// entryTimes are when the last entries of a commit log were written, and to
// which partition of it.
type entryTimes map[entryKey]entryTime

type entryKey struct {
	group string
	Partition
}

type entryTime struct {
	partition int32
	at        time.Time
}

// isNews reports whether an entry is the newest of those that were read. In one
// partition of the log that is so. But what is in another one, because the log
// got more partitions, may have been read in any order.
func (t entryTimes) isNews(e CommitLogEntry, r *kgo.Record) bool {
	k := entryKey{e.Group, e.Partition}
	last, ok := t[k]
	if ok && last.partition != r.Partition && r.Timestamp.Before(last.at) {
		return false
	}
	t[k] = entryTime{r.Partition, r.Timestamp}
	return true
}

// endsOf returns the end of each partition that has something in it.
func (c *Consumer) endsOf(client *kgo.Client, topic string) (map[int32]int64, error) {
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(c.root, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of the commit log: %w", err)
	}
	starts, err := admin.ListStartOffsets(c.root, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("starts of the commit log: %w", err)
	}
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if start, ok := starts.Lookup(o.Topic, o.Partition); !ok || start.Offset < o.Offset {
			left[o.Partition] = o.Offset
		}
	})
	return left, nil
}

// gateOf returns what an epoch waits for: the offset that it may be read up to,
// the group that has not committed more, and since when. It reports false for
// one that does not wait.
func (c *Consumer) gateOf(s *epochState) (limit int64, group string, since time.Time, waits bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.follower == nil {
		return -1, "", time.Time{}, false
	}
	limit, group = c.follower.limit(s.Partition)
	since, waits = c.follower.since[s]
	return limit, group, since, waits
}

// stopCrowded pauses partitions of which more is parked than may be, and returns
// them. Consumer.mu is held; the caller tells kgo, before it is polled again.
func (c *Consumer) stopCrowded() (ps []Partition) {
	for _, s := range c.stream.crowded {
		if s.waiting > maxParked && c.open[s.Partition] == s {
			s.paused |= pausedForGate
			ps = append(ps, s.Partition)
		}
	}
	c.stream.crowded = nil
	return ps
}

// watchEnds keeps the ends of logs up to date that are not fetched because much
// of them is parked.
func (c *Consumer) watchEnds() {
	admin := kadm.NewClient(c.client)
	for c.sleep(c.root, endsEvery) {
		waiting := make(map[Partition]*epochState)
		c.mu.Lock()
		for p, s := range c.open {
			if s.paused&pausedForGate != 0 {
				waiting[p] = s
			}
		}
		c.mu.Unlock()
		if len(waiting) == 0 {
			continue
		}
		list := admin.ListEndOffsets
		if c.readCommitted() {
			list = admin.ListCommittedOffsets
		}
		ends, err := list(c.root, topicsOf(slices.Collect(maps.Keys(waiting)))...)
		if err != nil {
			continue // the ends that are known are what there is; asked again soon
		}
		c.mu.Lock()
		for p, s := range waiting {
			if end, ok := ends.Lookup(p.Topic, p.Number); ok && end.Err == nil {
				s.end = max(s.end, end.Offset)
			}
		}
		c.mu.Unlock()
	}
}

// ungate lets a partition be fetched again of which little is parked any more.
// Consumer.mu is held; the caller tells kgo.
func (c *Consumer) ungate(s *epochState) (resumed *epochState) {
	if s.paused&pausedForGate == 0 || s.waiting > maxParked/2 {
		return nil
	}
	s.paused &^= pausedForGate
	return s
}
