package arroyo_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

// read polls until n records have come and returns their offsets by partition.
func read(t *testing.T, c *arroyo.Consumer, n int) map[int32][]int64 {
	t.Helper()
	got := make(map[int32][]int64)
	for n > 0 {
		switch ev := next(t, c).(type) {
		case *arroyo.Fetched:
			for _, r := range ev.Records {
				got[r.Partition] = append(got[r.Partition], r.Offset)
			}
			n -= len(ev.Records)
		case *arroyo.Assigned:
		default:
			t.Fatalf("got %T %+v, want records", ev, ev)
		}
	}
	return got
}

func openConsumer(t *testing.T, broker *memkafka.Broker, opts ...arroyo.ConsumerOption) *arroyo.Consumer {
	t.Helper()
	c, err := arroyo.NewConsumer(group, []string{topic}, append([]arroyo.ConsumerOption{arroyo.ClientOptions(broker.ClientOptions()...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestStartAt(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		assigned := expect[*arroyo.Assigned](t, c)
		if err := assigned.StartAt(assigned.Epochs[0], 7); err != nil {
			t.Fatal(err)
		}
		var refused *arroyo.NotHeldError
		if err := assigned.StartAt(arroyo.Epoch{N: 99}, 7); !errors.As(err, &refused) {
			t.Errorf("StartAt of another epoch: %v, want a NotHeldError", err)
		}
		var bad *arroyo.OptionError
		if err := assigned.StartAt(assigned.Epochs[0], -1); !errors.As(err, &bad) {
			t.Errorf("StartAt a negative offset: %v, want an OptionError", err)
		}
		got := read(t, c, 13)
		if got[0][0] != 7 || got[1][0] != 0 {
			t.Errorf("read from %d and %d, want 7 and 0", got[0][0], got[1][0])
		}
		if diff := cmp.Diff(map[int32]int64{1: 0}, broker.Committed(group, topic)); diff != "" {
			t.Errorf("committed, although the offset is kept elsewhere (-want +got):\n%s", diff)
		}
	})
}

func TestSeek(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 20)
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		old := expect[*arroyo.Assigned](t, c).Epochs
		read(t, c, 20)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 10}); err != nil {
			t.Fatal(err)
		}
		if err := c.Seek(map[arroyo.Epoch]int64{old[0]: 4}); err != nil {
			t.Fatal(err)
		}
		lost := expect[*arroyo.Lost](t, c)
		if diff := cmp.Diff([]arroyo.Epoch{old[0]}, lost.Epochs); diff != "" || !errors.Is(lost.Reason, arroyo.ErrSeek) {
			t.Errorf("lost because of %v (-want +got):\n%s", lost.Reason, diff)
		}
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{old[0]: 10}); !errors.Is(err, arroyo.ErrFenced) {
			t.Errorf("Commit of the old epoch: %v, want ErrFenced", err)
		}
		back := expect[*arroyo.Assigned](t, c)
		if len(back.Epochs) != 1 || back.Epochs[0].Number != 0 || !errors.Is(back.Reason, arroyo.ErrSeek) {
			t.Errorf("assigned %v because of %v", back.Epochs, back.Reason)
		}
		if at, ok := c.Position(back.Epochs[0]); !ok || at != 4 {
			t.Errorf("Position %d, %v; want 4", at, ok)
		}
		if diff := cmp.Diff(map[int32][]int64{0: {4, 5, 6, 7, 8, 9}}, read(t, c, 6)); diff != "" {
			t.Errorf("read again (-want +got):\n%s", diff)
		}
		// The new epoch may commit below the old one.
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{back.Epochs[0]: 5}); err != nil {
			t.Fatal(err)
		}
		if got := broker.Committed(group, topic)[0]; got != 5 {
			t.Errorf("committed %d, want 5", got)
		}
		var refused *arroyo.NotHeldError
		if err := c.Seek(map[arroyo.Epoch]int64{old[0]: 4}); !errors.As(err, &refused) {
			t.Errorf("Seek of an old epoch: %v, want a NotHeldError", err)
		}
	})
}

func TestPauseBelongsToTheEpoch(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		expect[*arroyo.Assigned](t, c)
		records := make(chan int32, 100)
		done := inBackground(t, c, func(ev arroyo.Event) {
			if f, ok := ev.(*arroyo.Fetched); ok {
				for range f.Records {
					records <- f.Epoch.Number
				}
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{f.Epoch: f.Next}); err != nil {
					t.Errorf("Commit: %v", err)
				}
			}
		})
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		zero, one := arroyo.Partition{Topic: topic}, arroyo.Partition{Topic: topic, Number: 1}
		if err := c.Pause(zero, one); err != nil {
			t.Fatal(err)
		}
		produce(broker, 2)
		time.Sleep(time.Minute)
		if n := len(records); n != 0 {
			t.Errorf("%d records came although their partitions are paused", n)
		}
		if err := c.Resume(one); err != nil {
			t.Fatal(err)
		}
		if p := <-records; p != 1 {
			t.Errorf("a record of partition %d came, want 1", p)
		}
		if err := c.Pause(one); err != nil {
			t.Fatal(err)
		}
		// Lost and regained, both flow; nothing is lost meanwhile.
		rival := broker.Join(group, topic, opts...)
		broker.WaitStable(group, 2)
		taken := rival.Assigned()[0]
		rival.Leave()
		broker.WaitStable(group, 1)
		broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: taken, Value: []byte("x")})
		time.Sleep(time.Minute)
		got := make(map[int32]int)
		for range len(records) {
			got[<-records]++
		}
		want := map[int32]int{taken: 1}
		if taken == 0 || len(opts) == 1 { // eager takes both away
			want[0]++ // the one that it was paused for
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("records after partition %d came back (-want +got):\n%s", taken, diff)
		}
		var refused *arroyo.NotHeldError
		if err := c.Pause(arroyo.Partition{Topic: topic, Number: 9}); !errors.As(err, &refused) {
			t.Errorf("Pause of a partition that is not held: %v, want a NotHeldError", err)
		}
		c.Close()
		<-done
	})
}

// S7: a partition paused by the user stays paused when a rebalance concerns
// others.
func TestPauseOutlastsOthersRebalance(t *testing.T) {
	for _, p := range protocols {
		if p.name == "eager" {
			continue // there it concerns all
		}
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 4))
				c := openConsumer(t, broker, arroyo.ClientOptions(p.opts...))
				expect[*arroyo.Assigned](t, c)
				records := make(chan int32, 100)
				done := inBackground(t, c, func(ev arroyo.Event) {
					if f, ok := ev.(*arroyo.Fetched); ok {
						for range f.Records {
							records <- f.Epoch.Number
						}
					}
				})
				time.Sleep(time.Second)
				if err := c.Pause(arroyo.Partition{Topic: topic}, arroyo.Partition{Topic: topic, Number: 3}); err != nil {
					t.Fatal(err)
				}
				rival := broker.Join(group, topic, p.opts...)
				broker.WaitStable(group, 2)
				var kept int32 // one of the two; nobody can say which
				if slices.Contains(rival.Assigned(), 0) {
					kept = 3
				}
				if slices.Contains(rival.Assigned(), kept) {
					t.Fatalf("the rival has %v, and so both that are paused", rival.Assigned())
				}
				broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: kept, Value: []byte("x")})
				time.Sleep(time.Minute)
				if n := len(records); n != 0 {
					t.Errorf("%d records came although their partition is paused", n)
				}
				if err := c.Resume(arroyo.Partition{Topic: topic, Number: kept}); err != nil {
					t.Fatal(err)
				}
				<-records
				c.Close()
				<-done
			})
		})
	}
}

func TestAssignmentPositionLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 6)
		c := openConsumer(t, broker)
		if len(c.Assignment()) != 0 || len(c.Lag()) != 0 {
			t.Error("something is assigned before the first Poll")
		}
		epochs := expect[*arroyo.Assigned](t, c).Epochs
		if diff := cmp.Diff(epochs, c.Assignment()); diff != "" {
			t.Errorf("Assignment (-want +got):\n%s", diff)
		}
		if _, ok := c.Position(epochs[0]); ok {
			t.Error("there is a position before it can be known")
		}
		read(t, c, 6)
		for _, e := range epochs {
			if at, ok := c.Position(e); !ok || at != 3 {
				t.Errorf("Position of %s: %d, %v; want 3", e, at, ok)
			}
		}
		if diff := cmp.Diff(map[arroyo.Epoch]int64{epochs[0]: 0, epochs[1]: 0}, c.Lag()); diff != "" {
			t.Errorf("Lag (-want +got):\n%s", diff)
		}
	})
}

func TestEndOfPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		c := openConsumer(t, broker, arroyo.EndOfPartitionEvents())
		epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
		for end := range int64(3) {
			if got := expect[*arroyo.EndOfPartition](t, c); got.Epoch != epoch || got.Offset != end {
				t.Errorf("got %+v, want the end %d", got, end)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if ev, err := c.Poll(ctx); err == nil {
				t.Errorf("got %T, want nothing more while it stays caught up", ev)
			}
			cancel()
			produce(broker, 1)
			expect[*arroyo.Fetched](t, c)
		}
	})
}

// I15: with any start policy, what is produced after the group's first start
// was committed is read by some member, also if the first one read nothing.
func TestI15StartUnderChurn(t *testing.T) {
	for name, policy := range map[string]arroyo.StartPolicy{
		"earliest": arroyo.StartEarliest(),
		"latest":   arroyo.StartLatest(),
		"time":     arroyo.StartAtTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), // later than all there is
		"function": arroyo.StartFrom(func(context.Context, arroyo.Partition) (int64, error) { return 5, nil }),
	} {
		t.Run(name, func(t *testing.T) {
			underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				produce(broker, 5)
				first := openConsumer(t, broker, arroyo.Start(policy), arroyo.ClientOptions(opts...))
				expect[*arroyo.Assigned](t, first)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				if name != "earliest" {
					if ev, err := first.Poll(ctx); err == nil {
						t.Fatalf("got %T, want nothing", ev)
					}
				} else {
					expect[*arroyo.Fetched](t, first)
				}
				cancel()
				first.Close() // it has committed nothing that it read
				produce(broker, 7)
				second := openConsumer(t, broker, arroyo.Start(policy), arroyo.ClientOptions(opts...))
				want := []int64{5, 6, 7, 8, 9, 10, 11}
				if name == "earliest" {
					want = append([]int64{0, 1, 2, 3, 4}, want...)
				}
				if diff := cmp.Diff(want, read(t, second, len(want))[0]); diff != "" {
					t.Errorf("read (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestStartAtTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 1))
		produce(broker, 3)
		time.Sleep(time.Hour)
		from := time.Now()
		produce(broker, 2)
		c := openConsumer(t, broker, arroyo.Start(arroyo.StartAtTime(from)))
		if diff := cmp.Diff([]int64{3, 4}, read(t, c, 2)[0]); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

func TestStartFromFails(t *testing.T) {
	for name, f := range map[string]func(context.Context, arroyo.Partition) (int64, error){
		"error":    func(context.Context, arroyo.Partition) (int64, error) { return 0, errors.New("no such thing") },
		"panic":    func(context.Context, arroyo.Partition) (int64, error) { panic("boom") },
		"negative": func(context.Context, arroyo.Partition) (int64, error) { return -1, nil },
		"hangs": func(ctx context.Context, _ arroyo.Partition) (int64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				c := openConsumer(t, broker, arroyo.Start(arroyo.StartFrom(f)))
				expect[*arroyo.Assigned](t, c)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				ev, err := c.Poll(ctx)
				if err != nil {
					t.Fatal(err)
				}
				failed, ok := ev.(*arroyo.Failed)
				var start *arroyo.StartError
				if !ok || !failed.Fatal || !errors.As(failed.Err, &start) {
					t.Errorf("got %+v, want a fatal StartError", ev)
				}
			})
		})
	}
}

// A partition that is added later starts at its beginning, whatever the policy.
func TestPartitionAddedLater(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		latest := []arroyo.ConsumerOption{arroyo.Start(arroyo.StartLatest()), arroyo.ClientOptions(opts...)}
		first := openConsumer(t, broker, latest...)
		expect[*arroyo.Assigned](t, first)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if ev, err := first.Poll(ctx); err == nil {
			t.Fatalf("got %T, want nothing", ev)
		}
		cancel()
		first.Close()

		broker.AddPartitions(topic, 4)
		broker.ProduceRecords(&kgo.Record{Topic: topic, Partition: 3, Value: []byte("x")})
		second := openConsumer(t, broker, latest...)
		if diff := cmp.Diff(map[int32][]int64{3: {0}}, read(t, second, 1)); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

func TestResetOutOfRange(t *testing.T) {
	for name, want := range map[string]struct {
		policy arroyo.StartPolicy
		first  int64
	}{"earliest": {arroyo.StartEarliest(), 4}, "latest": {arroyo.StartLatest(), 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				produce(broker, 10)
				c := openConsumer(t, broker)
				epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
				read(t, c, 10)
				if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epoch: 2}); err != nil {
					t.Fatal(err)
				}
				c.Close()
				broker.ExpireRecords(topic, 0, 4)

				c = openConsumer(t, broker, arroyo.ResetOutOfRange(want.policy))
				expect[*arroyo.Assigned](t, c)
				lost := expect[*arroyo.Lost](t, c)
				var out *arroyo.OffsetOutOfRangeError
				if !errors.As(lost.Reason, &out) || out.Offset != 2 || out.Start != 4 || out.End != 10 {
					t.Errorf("lost because of %v, want what was skipped: 2 of 4 to 10", lost.Reason)
				}
				back := expect[*arroyo.Assigned](t, c)
				if at, _ := c.Position(back.Epochs[0]); at != want.first {
					t.Errorf("it goes on at %d, want %d", at, want.first)
				}
				produce(broker, 1)
				if got := read(t, c, 1)[0][0]; got != want.first {
					t.Errorf("read %d first, want %d", got, want.first)
				}
			})
		})
	}
}

// A log that ends in aborted transactions or markers is read to its end.
func TestLogThatEndsInControlRecords(t *testing.T) {
	for _, isolation := range []struct {
		name  string
		level kgo.IsolationLevel
		reads int
	}{{"committed", kgo.ReadCommitted(), 2}, {"uncommitted", kgo.ReadUncommitted(), 4}} {
		t.Run(isolation.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broker := memkafka.New(t, memkafka.Topic(topic, 1))
				broker.Produce(topic, "a", "b")
				broker.ProduceAborted(topic, "x", "y")
				_, end := broker.Bounds(topic, 0)
				if end != 5 {
					t.Fatalf("the log ends at %d, want 5: two, two aborted, a marker", end)
				}
				c := openConsumer(t, broker, arroyo.EndOfPartitionEvents(), arroyo.ClientOptions(kgo.FetchIsolationLevel(isolation.level)))
				epoch := expect[*arroyo.Assigned](t, c).Epochs[0]
				records := 0
				poll(t, c, func(ev arroyo.Event) bool {
					switch ev := ev.(type) {
					case *arroyo.Fetched:
						records += len(ev.Records)
						for _, r := range ev.Records {
							if r.Attrs.IsControl() {
								t.Error("a control record came")
							}
						}
					case *arroyo.EndOfPartition:
						if ev.Offset != end {
							t.Errorf("EndOfPartition at %d, want %d", ev.Offset, end)
						}
						return true
					}
					return false
				})
				if records != isolation.reads {
					t.Errorf("%d records, want %d", records, isolation.reads)
				}
				if lag := c.Lag()[epoch]; lag != 0 {
					t.Errorf("lag %d, want 0", lag)
				}
				c.Close()

				var ledger ledger
				m := startMember(t, broker, ledger.by("m"), []kgo.Opt{kgo.FetchIsolationLevel(isolation.level)})
				broker.WaitCommitted(group, topic, end)
				m.shutDown(t)
			})
		})
	}
}

// One failed or omitted offset fetch does not leave a partition unread.
func TestPartitionWithoutACursor(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		epochs := expect[*arroyo.Assigned](t, c).Epochs
		read(t, c, 10)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epochs[0]: 2, epochs[1]: 3}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		broker.Cluster().Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.OffsetFetch}, Topic: topic, Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed, Count: 3,
		})
		c = openConsumer(t, broker, arroyo.ClientOptions(opts...))
		got := make(map[int32][]int64)
		failed := false
		poll(t, c, func(ev arroyo.Event) bool {
			switch ev := ev.(type) {
			case *arroyo.Fetched:
				for _, r := range ev.Records {
					got[r.Partition] = append(got[r.Partition], r.Offset)
				}
			case *arroyo.Failed:
				failed = true
			case *arroyo.Assigned:
			default:
				t.Fatalf("got %T", ev)
			}
			return len(got[0])+len(got[1]) == 5
		})
		if diff := cmp.Diff(map[int32][]int64{0: {2, 3, 4}, 1: {3, 4}}, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if !failed {
			t.Error("the failure was not told")
		}
	})
}

// Nor does an answer that leaves a partition out.
func TestPartitionLeftOutOfTheAnswer(t *testing.T) {
	underEveryProtocol(t, func(t *testing.T, opts []kgo.Opt) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		c := openConsumer(t, broker, arroyo.ClientOptions(opts...))
		epochs := expect[*arroyo.Assigned](t, c).Epochs
		read(t, c, 10)
		if err := c.Commit(t.Context(), map[arroyo.Epoch]int64{epochs[0]: 2, epochs[1]: 3}); err != nil {
			t.Fatal(err)
		}
		c.Close()
		left := 6 // kgo gives up after four, and then it is our turn
		broker.Cluster().ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			broker.Cluster().KeepControl()
			req := kreq.(*kmsg.OffsetFetchRequest)
			if left--; left < 0 {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			for _, rg := range req.Groups {
				g := kmsg.NewOffsetFetchResponseGroup()
				g.Group = rg.Group
				for _, rt := range rg.Topics {
					to := kmsg.NewOffsetFetchResponseGroupTopic()
					to.Topic, to.TopicID = rt.Topic, rt.TopicID
					p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					p.Partition, p.Offset = 0, 2
					to.Partitions = append(to.Partitions, p)
					g.Topics = append(g.Topics, to)
				}
				resp.Groups = append(resp.Groups, g)
			}
			return resp, nil, true
		})
		c = openConsumer(t, broker, arroyo.ClientOptions(opts...))
		got := make(map[int32][]int64)
		poll(t, c, func(ev arroyo.Event) bool {
			if f, ok := ev.(*arroyo.Fetched); ok {
				for _, r := range f.Records {
					got[r.Partition] = append(got[r.Partition], r.Offset)
				}
			}
			return len(got[0])+len(got[1]) >= 5
		})
		if diff := cmp.Diff(map[int32][]int64{0: {2, 3, 4}, 1: {3, 4}}, got); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if left >= 0 {
			t.Error("the answers did not leave it out")
		}
	})
}
