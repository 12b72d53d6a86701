package arroyo_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// I8: a pipeline that is stuck for ever at a revoke. The group moves on at the
// deadline, only the settled prefix is committed, Status and the log say what
// was abandoned, and its next owner processes it. When the function returns at
// last, its verdicts change nothing.
func TestI8StuckForEverAtARevoke(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		var (
			ledger  ledger
			release = make(chan struct{})
			stuck   atomic.Int32
			late    atomic.Int32
			log     = new(safeBuffer)
		)
		// Each partition is stuck from offset 3 on, so it does not matter
		// which one is given up.
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return hook{Forward: noop(), submit: func(ctx context.Context, msgs []arroyo.Message[*kgo.Record]) error {
				for _, m := range msgs {
					if m.Payload.Offset < 3 {
						ledger.add("stuck", m.Payload)
						m.Ack()
						continue
					}
					stuck.Add(1)
					arroyo.LaneOf(ctx).Go(func(context.Context) error {
						<-release
						m.Ack()
						late.Add(1)
						return nil
					})
				}
				return nil
			}}
		}, opts, arroyo.DrainTimeout(20*time.Second), arroyo.Logger(slog.New(slog.NewTextHandler(log, nil))))
		broker.WaitStable(group, 1)
		time.Sleep(3 * time.Second)
		if n := stuck.Load(); n != 14 {
			t.Fatalf("%d records are stuck, want 7 of each partition", n)
		}
		next := start(t, broker, ledger.pipeline("next"), opts)
		joined := time.Now()
		for broker.WaitStable(group, 2); len(next.Status().Partitions) == 0; {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(joined); took < 16*time.Second || took > 32*time.Second {
			t.Errorf("the group moved on after %v, want the time of a drain, and a few heartbeats", took)
		}
		time.Sleep(3 * time.Second)
		moved := next.Status().Partitions[0].Epoch.Number
		want := map[int32]int64{0: 3, 1: 3}
		want[moved] = 10
		if diff := cmp.Diff(want, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed, where partition %d moved (-want +got):\n%s", moved, diff)
		}
		abandoned := m.Status().Abandoned
		if abandoned != 7 && abandoned != 14 { // under the eager protocol both were given up
			t.Errorf("%d records were abandoned, want 7 of a partition", abandoned)
		}
		if n := strings.Count(log.String(), `msg="drain is past its deadline; the next owner goes on here" group=ingest topic=events partition=`); int64(n) != abandoned/7 || !strings.Contains(log.String(), "offset=3 unsettled=7") {
			t.Errorf("the log tells of %d partitions that were abandoned:\n%s", n, log)
		}

		close(release)
		time.Sleep(10 * time.Second)
		if n := late.Load(); n < 14 {
			t.Fatalf("%d verdicts came late", n)
		}
		s := m.Status()
		if s.State != arroyo.StateRunning || s.InFlight != 0 || s.InFlightBytes != 0 || s.Abandoned != abandoned {
			t.Errorf("after the late verdicts: %+v", s)
		}
		if got := broker.Committed(group, topic)[moved]; got != 10 {
			t.Errorf("a late verdict moved the commit of partition %d to %d", moved, got)
		}
		produce(broker, 20)
		broker.WaitCaughtUp(group, topic)
		next.shutDown(t)
		m.shutDown(t)
		seen := make(map[int64]int)
		for _, s := range ledger.all() {
			if s.partition == moved && s.by == "next" {
				seen[s.offset]++
			}
		}
		for offset := int64(3); offset < 10; offset++ {
			if seen[offset] != 1 {
				t.Errorf("the next owner processed offset %d of partition %d %d times, want once", offset, moved, seen[offset])
			}
		}
	})
}

// A revoke's flush reaches the batch behind a parallel step, behind the results
// of what the tasks have begun, and the drain is prompt.
func TestRevokeOfABatchBehindParallelTasks(t *testing.T) {
	inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
		broker := memkafka.New(t, memkafka.Topic(topic, 4))
		var ledger ledger
		m := start(t, broker, func() arroyo.Strategy[*kgo.Record] {
			return strategies.RunTaskInParallel(8, func(_ context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
				time.Sleep(100 * time.Millisecond)
				return m.Payload, nil
			}, strategies.ForEachBatch(1_000_000, time.Minute, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
				for _, row := range rows {
					ledger.add("m", row.Payload)
				}
				return nil
			}))
		}, opts)
		broker.WaitStable(group, 1)
		produce(broker, 400)
		time.Sleep(10 * time.Second)
		if n := len(ledger.all()); n != 0 {
			t.Fatalf("%d rows were handed out before the batch's minute is over", n)
		}
		joined := time.Now()
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		if took := time.Since(joined); took > 12*time.Second { // two heartbeats of KIP-848, and time to spare
			t.Errorf("the rival waited for its partitions for %v", took)
		}
		committed := broker.Committed(group, topic)
		for _, p := range rival.Assigned() {
			if committed[p] != 100 {
				t.Errorf("partition %d was given up at %d, want all 100 records", p, committed[p])
			}
		}
		rival.Leave()
		broker.WaitStable(group, 1)
		produce(broker, 400)
		time.Sleep(time.Second)
		began := time.Now()
		m.shutDown(t)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the last drain took %v", took)
		}
		last := start(t, broker, ledger.pipeline("last"), opts)
		broker.WaitCommitted(group, topic, 800)
		last.shutDown(t)
		ledger.expectAll(t, broker, 0)
	})
}

// A task that hangs does not hold up the drain of another partition, whose
// results wait in a batch behind it.
func TestRevokeBesideAHangingParallelTask(t *testing.T) {
	for _, p := range protocols {
		if p.name == "eager" {
			continue // it gives up the partition of the task as well
		}
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				var (
					ledger  ledger
					hanging atomic.Int32
				)
				m := startMember(t, broker, strategies.RunTaskInParallel(8, func(ctx context.Context, m arroyo.Message[*kgo.Record]) (*kgo.Record, error) {
					if m.Payload.Offset == 50 {
						// Whichever partition is not the one that is given up.
						hanging.Add(1)
						select {
						case <-arroyo.Draining(ctx):
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}
					return m.Payload, nil
				}, strategies.ForEachBatch(1_000_000, time.Hour, func(_ context.Context, rows []arroyo.Message[*kgo.Record]) error {
					for _, row := range rows {
						ledger.add("m", row.Payload)
					}
					return nil
				})), p.opts)
				broker.WaitStable(group, 1)
				produce(broker, 200)
				time.Sleep(5 * time.Second)
				if n := hanging.Load(); n != 2 {
					t.Fatalf("%d tasks hang, want one of each partition", n)
				}
				joined := time.Now()
				rival := broker.Join(group, topic, p.opts...)
				broker.WaitStable(group, 2)
				if took := time.Since(joined); took > 12*time.Second {
					t.Errorf("the rival waited for its partition for %v", took)
				}
				moved := rival.Assigned()[0]
				if got := broker.Committed(group, topic)[moved]; got < 51 {
					t.Errorf("partition %d was given up at %d, want what was begun to be done", moved, got)
				}
				if s := m.Status(); s.Abandoned != 0 || s.Partitions[0].InFlight < 50 {
					t.Errorf("%+v; want the other partition to hang as before", s)
				}
				m.shutDown(t)
			})
		})
	}
}

// When the brokers are back, the last commit of a drain does not wait for long
// behind an older one that kgo tries again.
func TestI8LastCommitBehindAnOlderOne(t *testing.T) {
	for _, answer := range []*kerr.Error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress} {
		for after := 15 * time.Second; after < 20*time.Second; after += 700 * time.Millisecond {
			inEveryMode(t, func(t *testing.T, opts []kgo.Opt, start starter) {
				broker := memkafka.New(t, memkafka.Topic(topic, 2))
				var ledger ledger
				m := start(t, broker, ledger.pipeline("m"), opts, arroyo.DrainTimeout(2*time.Second))
				broker.WaitStable(group, 1)
				time.Sleep(2 * time.Second)
				fault := broker.Fail(kmsg.OffsetCommit, answer)
				produce(broker, 10)
				time.Sleep(after)
				fault.Heal()
				began := time.Now()
				m.shutDown(t)
				if took := time.Since(began); took > 1500*time.Millisecond {
					t.Errorf("the shutdown took %v", took)
				}
				expectCommitted(t, broker)
			})
		}
	}
}
