// Package migrating has the two consumers that docs/migrating.md shows.
package migrating

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// docs/migrating.md shows this code, letter for letter.
func TestDocShowsThisCode(t *testing.T) {
	doc := read(t, "../migrating.md")
	for _, file := range []string{"insert.go", "latest.go", "produce.go", "latest_test.go"} {
		_, code, _ := strings.Cut(read(t, file), "\n)\n\n")
		if !strings.Contains(doc, "```go\n"+code+"```\n") {
			t.Errorf("migrating.md does not show %s as it is", file)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// table is a database without room for user 13.
type table struct{ users []int64 }

func (tb *table) Insert(_ context.Context, rows []arroyo.Message[Event]) error {
	for _, row := range rows {
		if row.Payload.User == 13 {
			row.Reject(errors.New("no such user"))
			continue
		}
		tb.users = append(tb.users, row.Payload.User)
	}
	return nil
}

func TestInsert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 1), memkafka.Topic("events.dead", 1))
		db := new(table)
		file := filepath.Join(t.TempDir(), "health")
		stop := memkafka.Start(t, func(ctx context.Context) error { return Run(ctx, db, file, broker.ClientOptions()...) })
		broker.ProduceJSON("events", Event{"view", 1, "/"}, Event{"heartbeat", 2, ""}, Event{"view", 13, "/"}, Event{"view", 3, "/"})
		broker.Produce("events", "not JSON")
		broker.WaitCommitted("ingest", "events", 5)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]int64{1, 3}, db.users); diff != "" {
			t.Errorf("inserted (-want +got):\n%s", diff)
		}
		var dead []string
		for _, r := range broker.Records("events.dead") {
			dead = append(dead, string(r.Value))
		}
		slices.Sort(dead)
		if len(dead) != 2 || dead[0] != "not JSON" || !strings.Contains(dead[1], "13") {
			t.Errorf("dead letters: %q", dead)
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	})
}

func TestLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		rig := arroyo.NewRig(strategies.RunTask(strategies.JSON,
			newLatest(10*time.Second,
				strategies.ForEach(func(_ context.Context, m arroyo.Message[Event]) error {
					got = append(got, m.Payload.Page)
					return nil
				}))))
		e := rig.Assign(arroyo.Partition{Topic: "events"})
		for i, event := range []string{`{"user":1,"page":"/a"}`, `{"user":2,"page":"/b"}`, `{"user":1,"page":"/c"}`} {
			rig.Feed(e, &kgo.Record{Offset: int64(i), Value: []byte(event)})
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if n := rig.Unsettled(e); n != 3 {
			t.Errorf("%d events are not settled, want 3: their ten seconds are not over", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"/b", "/c"}, got); diff != "" {
			t.Errorf("handed on (-want +got):\n%s", diff)
		}
		if offset, _ := rig.Watermark(e); offset != 3 {
			t.Errorf("the watermark is %d, want 3", offset)
		}
		if err := rig.Finish(); err != nil {
			t.Error(err)
		}
	})
}

// The latest events are written every ten seconds, and committed when the
// brokers have them. What is held at the end is left to the next run.
func TestRunLatest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic("events", 2), memkafka.Topic("latest", 1))
		start := func() (stop func() error) {
			return memkafka.Start(t, func(ctx context.Context) error { return RunLatest(ctx, broker.ClientOptions()...) })
		}
		expect := func(want map[string][]string) {
			t.Helper()
			got := make(map[string][]string)
			for _, r := range broker.Records("latest") {
				got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		}

		stop := start()
		broker.WaitStable("latest", 1)
		slow := broker.Delay(kmsg.Produce, 5*time.Second, memkafka.Times(1))
		// The first to partition 0, the next to partition 1, and so on.
		broker.ProduceJSON("events", Event{"view", 1, "/a"}, Event{"view", 2, "/b"}, Event{"view", 1, "/c"})
		slow.Wait(1)
		time.Sleep(3 * time.Second)
		if at := broker.Committed("latest", "events"); at[0] != 0 || at[1] != 0 {
			t.Errorf("committed %v, and the latest events are not written yet", at)
		}
		broker.WaitCommitted("latest", "events", 3)
		broker.ProduceJSON("events", Event{"view", 2, "/d"})
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		expect(map[string][]string{
			"1": {`{"kind":"view","user":1,"page":"/c"}`},
			"2": {`{"kind":"view","user":2,"page":"/b"}`},
		})

		stop = start()
		broker.WaitCommitted("latest", "events", 4)
		if err := stop(); err != nil {
			t.Error(err)
		}
		expect(map[string][]string{
			"1": {`{"kind":"view","user":1,"page":"/c"}`},
			"2": {`{"kind":"view","user":2,"page":"/b"}`, `{"kind":"view","user":2,"page":"/d"}`},
		})
	})
}
