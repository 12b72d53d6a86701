package main

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var testConfig = config{topic: "orders", group: "quickstart", orders: 1800, perSecond: 300}

// tell runs the program in a bubble, in which its seven seconds take none, and
// interrupts it after a while.
func tell(t *testing.T, interruptAfter time.Duration, check func(*report, string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), interruptAfter)
		defer cancel()
		var out output
		result, err := run(ctx, testConfig, &out)
		if err != nil {
			t.Fatalf("run: %v\n%s", err, out.String())
		}
		check(result, out.String())
		if t.Failed() {
			t.Log("\n" + out.String())
		}
	})
}

func TestEveryOrderIsStoredOnce(t *testing.T) {
	tell(t, time.Minute, func(r *report, out string) {
		if r.produced != int64(testConfig.orders) {
			t.Errorf("produced %d orders, want %d", r.produced, testConfig.orders)
		}
		var stored, filtered, duplicates int64
		for _, m := range r.members {
			if m.stored.Load() == 0 {
				t.Errorf("%s stored nothing", m.name)
			}
			stored += m.stored.Load()
			filtered += m.filtered.Load()
			duplicates += m.duplicates.Load()
		}
		if want := r.produced - r.cancelled; stored != want || int64(r.store.len()) != want {
			t.Errorf("stored %d orders, and %d are in the store; want %d", stored, r.store.len(), want)
		}
		if filtered != r.cancelled {
			t.Errorf("filtered out %d orders, want %d", filtered, r.cancelled)
		}
		if duplicates != 0 {
			t.Errorf("%d orders came twice", duplicates)
		}
		for id, o := range r.store.orders {
			if id != o.ID || o.Status == cancelled || len(o.Items) == 0 || o.Created.IsZero() {
				t.Errorf("%q is stored as %+v", id, o)
			}
		}
		var end int64
		for _, o := range r.offsets {
			end += o.end
			if o.committed != o.end {
				t.Errorf("partition %d is committed up to %d, want %d", o.partition, o.committed, o.end)
			}
		}
		if len(r.offsets) != newTopicPartitions || end != r.produced {
			t.Errorf("%d partitions with %d records, want %d with %d", len(r.offsets), end, newTopicPartitions, r.produced)
		}
		for _, line := range []string{
			"member 1 got partitions 0 1 2 3\n",
			"member 2 joins",
			"member 2 leaves",
			"has 0 1 2 3 now\n", // member 1 got the others back
		} {
			if !strings.Contains(out, line) {
				t.Errorf("the output lacks %q", line)
			}
		}
	})
}

func TestInterrupt(t *testing.T) {
	for _, after := range []time.Duration{
		0,
		time.Nanosecond,
		500 * time.Millisecond,
		2100 * time.Millisecond, // member 2 is joining
		3333 * time.Millisecond,
		4600 * time.Millisecond, // it has left
		6100 * time.Millisecond, // everything is produced
	} {
		t.Run(after.String(), func(t *testing.T) {
			tell(t, after, func(r *report, _ string) {
				if r == nil {
					if after > time.Nanosecond {
						t.Error("no report")
					}
					return
				}
				var processed, duplicates, committed int64
				for _, m := range r.members {
					processed += m.stored.Load() + m.filtered.Load()
					duplicates += m.duplicates.Load()
				}
				for _, o := range r.offsets {
					committed += max(o.committed, 0)
				}
				// A clean drain commits exactly what was processed.
				if committed != processed || duplicates != 0 {
					t.Errorf("committed %d, processed %d, %d of them twice", committed, processed, duplicates)
				}
				if after > time.Second && processed == 0 {
					t.Error("nothing was processed")
				}
			})
		})
	}
}

func TestErrors(t *testing.T) {
	cfg := testConfig
	cfg.group = ""
	synctest.Test(t, func(t *testing.T) {
		_, err := run(t.Context(), cfg, &output{})
		if err == nil || !strings.Contains(err.Error(), "the group is empty") {
			t.Errorf("run returned %v", err)
		}
	})
	cfg = testConfig
	cfg.brokers = []string{"127.0.0.1:1"}
	_, err := run(t.Context(), cfg, &output{})
	if err == nil || !strings.Contains(err.Error(), "no broker of 127.0.0.1:1 can be reached") {
		t.Errorf("run returned %v", err)
	}
}

// output is a buffer that goroutines may share.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
