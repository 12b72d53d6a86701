package arroyo

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// commitReserve is kept of a rebalance's time for the last commit.
const commitReserve = 5 * time.Second

// Consumer is a member of a consumer group whose records, rebalances and
// failures come as one ordered stream of events. It is for those who write
// their own loop; a Processor is such a loop.
//
// Poll and PollEvents are called by one goroutine. All other methods may be
// called from any.
type Consumer struct {
	group  string
	topics []string
	client *kgo.Client
	config consumerConfig
	lease  lease

	session, rebalance, heartbeat time.Duration // kgo's timeouts
	budget                        time.Duration // how long a rebalance may be held

	root    context.Context // kgo's; its end ends every request
	endRoot context.CancelFunc
	running goroutines // ours; Close waits for them

	gate     gate
	sending  chan struct{} // has room for one: the commit that is being sent
	ready    chan struct{} // closed when client is set
	draining chan struct{} // closed by Drain
	dying    chan struct{} // closed by Close: hooks wait for nothing any more
	closed   chan struct{} // closed when everything has ended
	shutting sync.Once
	shut     chan struct{} // closed when kgo's client is

	pausing sync.Mutex // see tellPauses; taken before mu

	mu            sync.Mutex
	stream        stream
	follower      *follower
	open          map[Partition]*epochState
	lastEpoch     uint64
	owned         map[Partition]bool   // kgo's view of what is ours
	paused        map[Partition]bool   // what kgo was told to pause
	metadata      map[Partition]string // of commits for what is owned, see startMetadata
	rebalanceFrom time.Time            // when the rebalance that goes on began; zero if none
	inSession     bool                 // kgo's last hook was an Assigned
	member        string               // our member ID, as of checkMember
	drainEvent    *Revoked             // the event of Drain, once there is one
	leaving       bool                 // kgo's hooks are part of our own leave
	ending        bool                 // Close was called, or the leave is done

	// Of kgo's hooks, which never run at the same time.
	sessionFrom  time.Time // when the last session began
	sessionPause time.Duration

	// Of the goroutine that polls.
	markersStay bool        // a lane takes control records out, where it looks at records anyway
	failed      []Partition // by the last poll; to be paused before the next
	joined      bool        // topics were added
	over        bool        // kgo's client has ended
	handing     releasable  // the event that the next Poll releases
}

// NewConsumer makes a member of the group that reads the topics. It does not
// connect: the first Poll joins the group.
//
// It returns an *OptionError, an *OwnedOptionError, or what kgo says of the
// client options.
func NewConsumer(group string, topics []string, opts ...ConsumerOption) (*Consumer, error) {
	if group == "" {
		return nil, &OptionError{"NewConsumer", "the group is empty: give the consumer group's name"}
	}
	if len(topics) == 0 {
		return nil, &OptionError{"NewConsumer", "no topics: give at least one"}
	}
	if slices.Contains(topics, "") {
		return nil, &OptionError{"NewConsumer", "a topic's name is empty"}
	}
	cfg := consumerConfig{groupSession: 45 * time.Second}
	for _, opt := range opts {
		opt(&cfg)
	}

	if cfg.groupSession <= 0 {
		return nil, &OptionError{"GroupSessionTimeout", fmt.Sprintf("%v is not positive: give the brokers' group.consumer.session.timeout.ms", cfg.groupSession)}
	}

	c := &Consumer{
		group:    group,
		topics:   slices.Clone(topics),
		config:   cfg,
		ready:    make(chan struct{}),
		sending:  make(chan struct{}, 1),
		draining: make(chan struct{}),
		dying:    make(chan struct{}),
		closed:   make(chan struct{}),
		shut:     make(chan struct{}),
		open:     make(map[Partition]*epochState),
		owned:    make(map[Partition]bool),
		paused:   make(map[Partition]bool),
		metadata: make(map[Partition]string),
	}
	c.gate.init()
	c.stream.init()
	if cfg.sync != nil {
		if err := cfg.sync.check(c); err != nil {
			return nil, err
		}
		c.follower = newFollower(cfg.sync.groups)
		c.stream.follower = c.follower
	}
	c.root, c.endRoot = context.WithCancel(context.Background())
	// kgo may call hooks before NewClient has returned (with Regex it joins).
	client, err := c.newClient(c.root, group, cfg.client)
	if err != nil {
		c.endRoot()
		return nil, err
	}
	c.client = client
	c.session = client.OptValue(kgo.SessionTimeout).(time.Duration)
	c.rebalance = client.OptValue(kgo.RebalanceTimeout).(time.Duration)
	c.heartbeat = client.OptValue(kgo.HeartbeatInterval).(time.Duration)
	c.budget = c.rebalance - c.heartbeat - commitReserve
	close(c.ready)
	if c.budget <= 0 {
		c.shutDown(0)
		return nil, &OptionError{"kgo.RebalanceTimeout", fmt.Sprintf(
			"%v leaves no time to finish work in a rebalance: it has to be more than the heartbeat interval (%v) and %v for the last commit",
			c.rebalance, c.heartbeat, commitReserve)}
	}
	return c, nil
}

// reads reports whether the consumer reads the topic.
func (c *Consumer) reads(topic string) bool {
	if !c.config.regex {
		return slices.Contains(c.topics, topic)
	}
	return slices.ContainsFunc(c.topics, func(expr string) bool {
		match, err := regexp.MatchString(expr, topic)
		return err == nil && match
	})
}

// Client returns the kgo client, to produce with or to ask the cluster. Do not
// poll, commit, pause, seek or close it.
func (c *Consumer) Client() *kgo.Client { return c.client }

// Poll returns the next event. It waits until there is one or until ctx ends,
// whose error it then returns. After *Closed, and after Close, it returns
// ErrClosed.
//
// Calling Poll says that the event before it is handled: it releases it,
// unless it is held. That is so even if ctx has ended.
func (c *Consumer) Poll(ctx context.Context) (Event, error) {
	return c.next(ctx, true)
}

// PollEvents is Poll without records: it takes none from kgo and returns none.
// Who cannot take more records calls it to go on serving rebalances; who does
// not poll at all neither sees nor releases them. Records of a revoked
// partition that were fetched but not returned yet are left to its next owner.
func (c *Consumer) PollEvents(ctx context.Context) (Event, error) {
	return c.next(ctx, false)
}

// next is Poll, with the possibility to be woken.
func (c *Consumer) next(ctx context.Context, records bool) (Event, error) {
	for {
		ev, err := c.nextOrWoken(ctx, records)
		if !errors.Is(err, errWoken) {
			return ev, err
		}
	}
}

// errWoken says that the run loop has something else to do.
var errWoken = errors.New("arroyo: woken")

// nextOrWoken is Poll, but returns errWoken after a call of wake.
func (c *Consumer) nextOrWoken(ctx context.Context, records bool) (Event, error) {
	if c.handing != nil {
		if h := c.handing.heldBy(); !h.held.Load() {
			h.release()
		}
		c.handing = nil
	}
	if !c.joined {
		c.joined = true
		c.join()
	}
	for {
		c.mu.Lock()
		ev, err := c.stream.take(records)
		var resumed *epochState
		switch e := ev.(type) {
		case *Fetched:
			c.yielded(e)
			resumed = c.ungate(e.state)
		case *moving:
			c.mu.Unlock()
			if ev = c.moved(e); ev == nil {
				continue
			}
			c.handing = ev.(releasable)
			return ev, nil
		case *starting:
			c.mu.Unlock()
			c.start(e)
			continue
		case *repaired:
			c.mu.Unlock()
			c.setRepaired(e)
			continue
		}
		if ev != nil || err != nil {
			c.mu.Unlock()
			if resumed != nil {
				c.tellPauses([]Partition{resumed.Partition})
			}
			c.handing, _ = ev.(releasable)
			return ev, err
		}
		if err := ctx.Err(); err != nil {
			c.mu.Unlock()
			return nil, err
		}
		polling, cancel := context.WithCancel(ctx)
		c.stream.interrupt = cancel
		crowded := c.stopCrowded()
		c.mu.Unlock()

		c.tellPauses(crowded)
		if records && !c.over && c.root.Err() == nil {
			c.fill(polling)
		} else {
			<-polling.Done()
		}

		c.mu.Lock()
		c.stream.interrupt = nil
		c.mu.Unlock()
		cancel()
	}
}

// wake makes nextOrWoken return errWoken, now or at its next call.
func (c *Consumer) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream.woken = true
	c.stream.stir()
}

// Commit commits for each epoch the offset to go on from: the last one that is
// done, plus one. It waits for the broker's answer, or until ctx ends; then the
// outcome is unknown, because a commit that was sent is not taken back.
//
// Answers that pass (a coordinator that moves, a rebalance in progress) are
// tried again. An offset below one that was committed in the same epoch counts
// as committed. The error is a *NotHeldError, and nothing is committed, if an
// epoch is not held; ErrClosed; an *OptionError for a negative offset; else a
// *CommitError.
func (c *Consumer) Commit(ctx context.Context, offsets map[Epoch]int64) error {
	states := make(map[*epochState]position, len(offsets))
	c.mu.Lock()
	if c.ending {
		c.mu.Unlock()
		return ErrClosed
	}
	for e, offset := range offsets {
		if offset < 0 {
			c.mu.Unlock()
			return &OptionError{"Commit", fmt.Sprintf("offset %d of %s is negative: give the offset to go on from", offset, e)}
		}
		s := c.open[e.Partition]
		if s == nil || s.Epoch != e || s.fenced.Load() {
			c.mu.Unlock()
			return &NotHeldError{e}
		}
		p := position{offset, -1}
		if s.fetched.offset == offset {
			p.leaderEpoch = s.fetched.leaderEpoch
		}
		states[s] = p
	}
	c.mu.Unlock()
	return c.commit(ctx, states, true)
}

// join makes kgo join the group, unless the consumer has ended before that.
func (c *Consumer) join() {
	c.mu.Lock()
	over := c.ending || c.drainEvent != nil
	c.mu.Unlock()
	if over {
		return
	}
	c.running.start(c.keepLease)
	if c.instanceID() != nil {
		c.running.start(c.watchUnassigned)
	}
	if c.follower != nil {
		c.running.start(c.follow)
		c.running.start(c.watchEnds)
	}
	if !c.config.regex {
		c.client.AddConsumeTopics(c.topics...)
		c.running.start(c.checkTopics)
	}
}
