package arroyo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// safeBuffer is a log that a test reads while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestStatus(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		release := make(chan struct{})
		consumer := newConsumer(t, broker, opts...)
		never, err := arroyo.NewProcessor(consumer, strategies.Noop[*kgo.Record]())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(arroyo.Status{State: arroyo.StateNew, Group: group}, never.Status(), cmpopts.IgnoreUnexported(arroyo.Status{})); diff != "" {
			t.Errorf("before Run (-want +got):\n%s", diff)
		}
		consumer.Close()

		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.Filter(func(arroyo.Message[*kgo.Record]) bool { return true },
				strategies.ForEach(func(_ context.Context, m arroyo.Message[*kgo.Record]) error {
					if string(m.Payload.Value) == "8" { // offset 4 of partition 0
						<-release
					}
					return nil
				}, strategies.Name("insert")), strategies.Name("wanted"))
		}, opts)
		broker.WaitStable(group, 1)
		s := m.Status()
		if s.State != arroyo.StateRunning || s.Group != group || s.Member == "" || len(s.Partitions) != 2 {
			t.Errorf("idle: %+v", s)
		}
		produce(broker, 20)
		time.Sleep(10 * time.Second)
		s = m.Status()
		p := s.Partitions[0]
		if p.Epoch.Number != 0 || p.State != arroyo.PartitionFlows || p.Position != 10 || p.Watermark != 4 || p.Committed != 4 || p.End != 10 || p.Lag != 6 {
			t.Errorf("the partition that is stuck: %+v", p)
		}
		if p.InFlight != 6 || p.OldestOffset != 4 || p.OldestAge != 10*time.Second || p.Step != "insert" || p.Stalled {
			t.Errorf("its oldest record: %+v", p)
		}
		if len(s.Steps) != 2 || s.Steps[0].Name != "wanted" || s.Steps[1].Name != "insert" || s.Steps[0].Messages != s.Steps[1].Messages {
			t.Errorf("steps: %+v", s.Steps)
		}
		close(release)
		broker.WaitCommitted(group, topic, 20)
		s = m.Status()
		for _, p := range s.Partitions {
			if p.Lag != 0 || p.Watermark != 10 || p.InFlight != 0 || p.OldestOffset != -1 || p.OldestAge != 0 {
				t.Errorf("caught up: %+v", p)
			}
		}
		if s.InFlight != 0 || s.InFlightBytes != 0 || s.Steps[1].Messages != 20 {
			t.Errorf("caught up: %+v", s)
		}
		m.shutDown(t)
		s = m.Status()
		if s.State != arroyo.StateEnded || s.Err != nil || len(s.Partitions) != 0 || s.Steps[1].Messages != 20 {
			t.Errorf("after Run: %+v", s)
		}
	})
}

// Status and Health may be asked from any goroutine at any time.
func TestStatusAtAnyTime(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		m := start(t, broker, ledger.slowPipeline("m", time.Millisecond), opts)
		ctx, cancel := context.WithCancel(t.Context())
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				for ctx.Err() == nil {
					m.Status()
					_ = m.Health()
					time.Sleep(3 * time.Millisecond)
				}
			})
		}
		produce(broker, 400)
		other := start(t, broker, ledger.pipeline("other"), opts)
		broker.WaitStable(group, 2)
		produce(broker, 400)
		broker.WaitCommitted(group, topic, 800)
		other.shutDown(t)
		m.shutDown(t)
		cancel()
		asking.Wait()
		ledger.expectAll(t, broker, 0)
	})
}

// A partition whose oldest record is too old is reported once, with where it
// is, makes the processor unhealthy, and again when it goes on.
func TestStallIsReported(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		release := make(chan struct{})
		var ledger ledger
		log := new(safeBuffer)
		stalls := new(stallRecorder)
		m := start(t, broker, stuckPipeline(&ledger, "8", release), opts,
			arroyo.StallAfter(time.Minute), arroyo.Logger(slog.New(slog.NewTextHandler(log, nil))), arroyo.Hooks(stalls))
		broker.WaitStable(group, 1)
		if err := m.Health(); err != nil {
			t.Errorf("without records: %v", err)
		}
		produce(broker, 20)
		time.Sleep(55 * time.Second)
		if err := m.Health(); err != nil {
			t.Errorf("after 55 s: %v", err)
		}
		time.Sleep(20 * time.Minute)
		err := m.Health()
		if err == nil || !strings.Contains(err.Error(), "events/0 is stalled at offset 4 in step insert") {
			t.Errorf("after 20 minutes: %v", err)
		}
		if n := strings.Count(log.String(), `msg="partition is stalled: its oldest record is not settled" group=ingest topic=events partition=0 epoch=1 offset=4 step=insert age=1m`); n != 1 {
			t.Errorf("the stall was reported %d times:\n%s", n, log)
		}
		close(release)
		broker.WaitCommitted(group, topic, 20)
		time.Sleep(10 * time.Second)
		if err := m.Health(); err != nil {
			t.Errorf("after it went on: %v", err)
		}
		if n := strings.Count(log.String(), `msg="partition goes on" group=ingest topic=events partition=0 epoch=1`); n != 1 {
			t.Errorf("its end was reported %d times:\n%s", n, log)
		}
		m.shutDown(t)
		if got := stalls.String(); !strings.Contains(got, "stalled events/0 at 4 in insert") || !strings.Contains(got, "goes on events/0") {
			t.Errorf("the hook was told %q", got)
		}
	})
}

type stallRecorder struct {
	mu   sync.Mutex
	said []string
}

func (r *stallRecorder) OnStalled(p arroyo.PartitionStatus, stalled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if stalled {
		r.said = append(r.said, "stalled "+p.Epoch.Partition.String()+" at "+fmt.Sprint(p.OldestOffset)+" in "+p.Step)
		return
	}
	r.said = append(r.said, "goes on "+p.Epoch.Partition.String())
}

func (r *stallRecorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, ", ")
}

// An idle member, a member without partitions and one whose commits fail for
// less than StallAfter are healthy; one whose commits fail for longer is not.
func TestHealth(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		opts = append(opts, kgo.FetchMaxWait(10*time.Second)) // fewer fetches in all these hours
		var ledger ledger
		owner := start(t, broker, ledger.pipeline("owner"), opts)
		broker.WaitStable(group, 1)
		idle := start(t, broker, ledger.pipeline("idle"), opts)
		broker.WaitStable(group, 2)
		time.Sleep(time.Hour)
		for _, m := range []*member{owner, idle} {
			if err := m.Health(); err != nil {
				t.Errorf("idle: %v", err)
			}
		}
		idle.shutDown(t)
		if err := idle.Health(); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("after Run: %v", err)
		}
		broker.WaitStable(group, 1)
		fault := broker.Fail(kmsg.OffsetCommit, kerr.CoordinatorLoadInProgress)
		for range 8 {
			produce(broker, 10)
			time.Sleep(time.Minute)
		}
		var failed *arroyo.CommitError
		if err := owner.Health(); !errors.As(err, &failed) || !strings.Contains(err.Error(), "commits fail for 7m") {
			t.Errorf("after 8 minutes of failing commits: %v", err)
		}
		fault.Heal()
		broker.WaitCommitted(group, topic, 80)
		time.Sleep(20 * time.Second) // until the next commit is answered
		if err := owner.Health(); err != nil {
			t.Errorf("after the commits succeed again: %v", err)
		}
		owner.shutDown(t)
	})
}

// A commit that failed for a partition which somebody else has now says nothing
// about the health of this member.
func TestHealthAfterACommitForALostPartition(t *testing.T) {
	for _, mode := range []string{"shared", "partitioned"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				var ledger ledger
				var m *member
				if mode == "shared" {
					m = startMember(t, broker, ledger.by("m"), nil)
				} else {
					m = startPartitioned(t, broker, func(arroyo.Epoch) arroyo.Strategy[*kgo.Record] { return ledger.by("m") }, nil)
				}
				broker.WaitStable(group, 1)
				rival := broker.Join(group, topic)
				broker.WaitStable(group, 2)
				fault := broker.Fail(kmsg.OffsetCommit, kerr.UnknownMemberID)
				produce(broker, 10)
				fault.Wait(1)
				time.Sleep(time.Millisecond)
				if err := m.Status().CommitErr; err == nil {
					t.Error("the commit did not fail: this tests nothing")
				}
				fault.Heal()
				rival.Take(0)
				time.Sleep(time.Hour)
				if s := m.Status(); len(s.Partitions) != 0 {
					t.Fatalf("it has %d partitions, want the rival to have the only one", len(s.Partitions))
				}
				if err := m.Health(); err != nil {
					t.Errorf("Health: %v", err)
				}
				m.shutDown(t)
			})
		})
	}
}

func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		release := make(chan struct{})
		var ledger ledger
		processor, err := arroyo.NewProcessor(newConsumer(t, broker), stuck(&ledger, "8", release), quiet, arroyo.StallAfter(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		get := func(h http.Handler) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w
		}
		if w := get(processor.HealthHandler()); w.Code != http.StatusServiceUnavailable {
			t.Errorf("before Run: %d", w.Code)
		}
		stop := memkafka.Start(t, processor.Run)
		broker.WaitStable(group, 1)
		if w := get(processor.HealthHandler()); w.Code != http.StatusOK || w.Body.String() != "ok\n" {
			t.Errorf("healthy: %d %s", w.Code, w.Body)
		}
		produce(broker, 20)
		time.Sleep(5 * time.Minute)
		if w := get(processor.HealthHandler()); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "events/0 is stalled") {
			t.Errorf("stalled: %d %s", w.Code, w.Body)
		}
		w := get(processor.StatusHandler())
		var got struct {
			State      string
			Partitions []struct {
				Epoch        arroyo.Epoch
				Lag          int64
				OldestAge    string
				OldestOffset int64
				Stalled      bool
			}
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
			t.Fatalf("status: %v, %d\n%s", err, w.Code, w.Body)
		}
		p := got.Partitions[0]
		if got.State != "running" || p.Epoch.Topic != topic || p.Lag != 6 || p.OldestAge != "5m0s" || p.OldestOffset != 4 || !p.Stalled {
			t.Errorf("status: %+v\n%s", got, w.Body)
		}
		close(release)
		broker.WaitCommitted(group, topic, 20)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if w := get(processor.HealthHandler()); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "ended") {
			t.Errorf("after Run: %d %s", w.Code, w.Body)
		}
	})
}

// hookRecorder has all the methods that a hook can have.
type hookRecorder struct {
	mu                        sync.Mutex
	assigned, revoked, lost   []arroyo.Epoch
	fetched, bytes, submitted int
	committed                 map[int32]int64
	commitErr                 error
}

func (r *hookRecorder) OnAssigned(epochs []arroyo.Epoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.assigned = append(r.assigned, epochs...)
}

func (r *hookRecorder) OnRevoked(epochs []arroyo.Epoch, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revoked = append(r.revoked, epochs...)
}

func (r *hookRecorder) OnLost(epochs []arroyo.Epoch, reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, epochs...)
}

func (r *hookRecorder) OnFetched(_ arroyo.Epoch, records, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetched += records
	r.bytes += bytes
}

func (r *hookRecorder) OnSubmitted(_ arroyo.Epoch, records int, _ time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.submitted += records
}

func (r *hookRecorder) OnCommitted(offsets map[arroyo.Epoch]int64, _ time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.commitErr = err
		return
	}
	for e, offset := range offsets {
		r.committed[e.Number] = max(r.committed[e.Number], offset)
	}
}

func TestHooks(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		r := &hookRecorder{committed: make(map[int32]int64)}
		m := start(t, broker, ledger.pipeline("m"), opts, arroyo.Hooks(r))
		broker.WaitStable(group, 1)
		produce(broker, 40) // of one byte and two
		broker.WaitCommitted(group, topic, 40)
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		rival.Leave()
		broker.WaitStable(group, 1)
		m.shutDown(t)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.assigned) < 6 || len(r.revoked) != len(r.assigned) || len(r.lost) != 0 {
			t.Errorf("%d assigned, %d revoked, %d lost", len(r.assigned), len(r.revoked), len(r.lost))
		}
		if r.fetched != 40 || r.bytes < 40*150 || r.bytes > 40*300 || r.submitted != 40 || r.commitErr != nil {
			t.Errorf("%d records of %d bytes fetched, %d submitted; commits: %v", r.fetched, r.bytes, r.submitted, r.commitErr)
		}
		if diff := cmp.Diff(map[int32]int64{0: 10, 1: 10, 2: 10, 3: 10}, r.committed); diff != "" {
			t.Errorf("committed (-want +got):\n%s", diff)
		}
	})
}
