package arroyo

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// streamCore drives a consumer's stream without any broker: it calls the hooks
// as kgo does (one at a time, each on a goroutine of its own), hands in what
// polls of kgo return, and polls.
type streamCore struct {
	t      *testing.T
	c      *Consumer
	hook   chan struct{} // closed when the hook that runs has returned; nil: none runs
	losing bool          // the hook that runs is a Lost
	owned  map[int32]bool
	next   map[int32]int64 // offsets, which go on over epochs

	open     map[Epoch]string // what was yielded last for it
	offset   map[Epoch]int64
	paused   map[Epoch]bool
	releases []func()

	polling *pollInFlight // of kgo; nil: none
}

// pollInFlight is a poll of kgo that has begun and not returned.
type pollInFlight struct {
	newest uint64           // the last epoch when it began
	open   map[int32]uint64 // the epochs then
}

const corePartitions = 4

func newStreamCore(t *testing.T) *streamCore {
	c, err := NewConsumer("g", []string{"t"}, ClientOptions(kgo.SeedBrokers("127.0.0.1:1")))
	if err != nil {
		t.Fatal(err)
	}
	c.joined = true // there is no group to join
	return &streamCore{
		t: t, c: c,
		owned: make(map[int32]bool), next: make(map[int32]int64),
		open: make(map[Epoch]string), offset: make(map[Epoch]int64), paused: make(map[Epoch]bool),
	}
}

func (s *streamCore) hookRuns() bool {
	if s.hook == nil {
		return false
	}
	synctest.Wait()
	select {
	case <-s.hook:
		s.hook, s.losing = nil, false
		return false
	default:
		return true
	}
}

// start calls a hook with those of the partitions in the mask that it can be
// about.
func (s *streamCore) start(kind byte, mask byte) {
	if s.hookRuns() {
		return
	}
	var ps []int32
	for p := range int32(corePartitions) {
		in := mask&(1<<p) != 0 || kind == 2
		if in && s.owned[p] == (kind != 0) {
			ps = append(ps, p)
			s.owned[p] = kind == 0
		}
	}
	m := map[string][]int32{}
	if len(ps) > 0 {
		m["t"] = ps
	}
	s.hook = make(chan struct{})
	s.losing = kind == 2
	call := []hookFunc{s.c.onAssigned, s.c.onRevoked, s.c.onLost}[kind]
	go func() {
		defer close(s.hook)
		call(context.Background(), s.c.client, m)
	}()
	synctest.Wait()
}

// beginPoll begins a poll of kgo. Until it returns, nothing else does what only
// the goroutine that polls does.
func (s *streamCore) beginPoll() {
	s.polling = &pollInFlight{s.c.lastEpoch, make(map[int32]uint64)}
	for _, e := range s.c.Assignment() {
		if s.owned[e.Number] || s.losing { // kgo returns nothing of what it revokes
			s.polling.open[e.Number] = e.N
		}
	}
}

// fetch hands in records of a partition, which kgo returns also for one that is
// being lost, and ends the poll. They say which epoch they are of.
func (s *streamCore) fetch(p int32, n int) {
	if s.polling == nil {
		s.beginPoll()
	}
	poll := s.polling
	s.polling = nil
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Topic: "t", Partition: p, Offset: s.next[p], ProducerID: int64(poll.open[p])}
		s.next[p]++
	}
	s.c.accept(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{
		Partition: p, Records: records, HighWatermark: 1000, LastStableOffset: -1,
	}}}}}}, poll.newest)
}

// pause pauses or resumes those partitions in the mask that are held.
func (s *streamCore) pause(mask byte, on bool) {
	for _, e := range s.c.Assignment() {
		if mask&(1<<e.Number) == 0 {
			continue
		}
		f := s.c.Resume
		if on {
			f = s.c.Pause
		}
		if f(e.Partition) == nil {
			s.paused[e] = on
		}
	}
}

// assignedQueued reports whether an Assigned waits to be yielded. Poll then
// does not poll kgo, so no records can come.
func (s *streamCore) assignedQueued() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return slices.ContainsFunc(s.c.stream.queued, func(ev Event) bool {
		_, ok := ev.(*Assigned)
		return ok
	})
}

// poll takes one event, if there is one, and checks its place.
func (s *streamCore) poll(records, hold bool) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	ev, err := s.c.next(ctx, records)
	if err != nil {
		return
	}
	switch ev := ev.(type) {
	case *Assigned:
		for _, e := range ev.Epochs {
			if _, ok := s.open[e]; ok {
				s.t.Fatalf("%s was assigned twice", e)
			}
			for other, last := range s.open {
				if other.Partition == e.Partition && last != "lost" && last != "revoked" {
					s.t.Fatalf("%s was assigned while %s is open", e, other)
				}
			}
			s.open[e] = "assigned"
			s.offset[e] = -1
		}
		if hold {
			s.releases = append(s.releases, ev.Hold())
		}
	case *Fetched:
		if !records {
			s.t.Fatal("PollEvents returned records")
		}
		if last := s.open[ev.Epoch]; last != "assigned" && last != "fetched" && last != "revoked" {
			s.t.Fatalf("records of %s after %q", ev.Epoch, last)
		}
		if s.open[ev.Epoch] == "revoked" {
			s.t.Fatalf("records of %s after its Revoked", ev.Epoch)
		}
		s.open[ev.Epoch] = "fetched"
		if s.paused[ev.Epoch] {
			s.t.Fatalf("records of %s, which is paused", ev.Epoch)
		}
		for _, r := range ev.Records {
			if r.ProducerID != int64(ev.Epoch.N) {
				s.t.Fatalf("%s was given records of epoch %d", ev.Epoch, r.ProducerID)
			}
			if last := s.offset[ev.Epoch]; last >= 0 && r.Offset != last+1 {
				s.t.Fatalf("offset %d of %s after %d", r.Offset, ev.Epoch, last)
			}
			s.offset[ev.Epoch] = r.Offset
		}
	case *Revoked:
		for _, e := range ev.Epochs {
			if last := s.open[e]; last != "assigned" && last != "fetched" {
				s.t.Fatalf("%s was revoked after %q", e, last)
			}
			s.open[e] = "revoked"
		}
		if hold {
			s.releases = append(s.releases, ev.Hold())
		}
	case *Lost:
		for _, e := range ev.Epochs {
			if last := s.open[e]; last == "" || last == "lost" {
				s.t.Fatalf("%s was lost after %q", e, last)
			}
			s.open[e] = "lost"
		}
	}
}

func playStream(t *testing.T, script []byte) {
	synctest.Test(t, func(t *testing.T) {
		s := newStreamCore(t)
		defer s.c.Close()
		for len(script) >= 2 {
			op, arg := script[0], script[1]
			script = script[2:]
			switch op %= 13; op {
			case 0, 1, 2:
				s.start(op, arg)
			case 3, 4:
				p := int32(arg % corePartitions)
				late := s.polling != nil && s.polling.open[p] != 0
				if late || (s.owned[p] && !s.hookRuns() || s.losing) && !s.assignedQueued() {
					s.fetch(p, 1+int(arg)/32)
				}
			case 5, 6, 7:
				s.polling = nil // it has returned nothing
				s.poll(op != 7, arg%4 == 0)
			case 8:
				if len(s.releases) > 0 {
					i := int(arg) % len(s.releases)
					s.releases[i]()
					s.releases = append(s.releases[:i], s.releases[i+1:]...)
				}
			case 9:
				time.Sleep(time.Duration(arg) * time.Second)
			case 10, 11:
				s.pause(arg, op == 10)
			case 12:
				if !s.assignedQueued() {
					s.beginPoll()
				}
			}
		}
		// Whatever is held, every hook returns: by its deadline at the latest.
		for range 3 {
			for range 50 {
				s.poll(true, false)
			}
			time.Sleep(time.Minute)
		}
		if s.hookRuns() {
			t.Fatal("a hook did not return by its deadline")
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte{0, 15, 5, 0, 5, 1, 3, 0, 3, 33, 5, 1, 1, 3, 5, 0, 3, 2, 5, 1, 8, 0, 0, 3, 5, 1})
	f.Add([]byte{0, 15, 5, 1, 5, 1, 3, 1, 2, 0, 3, 1, 5, 1, 5, 1, 5, 1, 0, 15, 5, 4, 9, 200})
	// A poll begins, the partitions are lost and come back, and it returns.
	f.Add([]byte{0, 15, 5, 1, 12, 0, 2, 0, 0, 15, 3, 0, 5, 1, 5, 1, 5, 1, 5, 1})
	f.Fuzz(playStream)
}

func TestStreamOrder(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		script := make([]byte, 20+rng.IntN(400))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		playStream(t, script)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
