package chain

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// read returns all of a topic, in order.
func (j *job) read(t *testing.T, topic string) []entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := j.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	for _, end := range ends[topic] {
		left += end.Offset
	}
	client, err := kgo.NewClient(append(j.kafka.ClientOptions(), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var entries []entry
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v; %d records are left", topic, err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			e, err := readEntry(r)
			if err != nil {
				t.Fatalf("%s: partition %d offset %d: %v", topic, r.Partition, r.Offset, err)
			}
			entries = append(entries, e)
			left--
		})
	}
	sortEntries(entries)
	return entries
}

func readEntry(r *kgo.Record) (entry, error) {
	n, err := strconv.Atoi(string(r.Value))
	if err != nil {
		return entry{}, err
	}
	e := entry{place: place{r.Partition, r.Offset}, key: string(r.Key), n: n}
	for _, h := range r.Headers {
		if h.Key != header {
			continue
		}
		if _, err := fmt.Sscan(string(h.Value), &e.by.life, &e.by.epoch, &e.of.partition, &e.of.offset); err != nil {
			return entry{}, err
		}
	}
	return e, nil
}

// epochs returns what the members of a level told of their partitions.
func (j *job) epochs(t *testing.T, level int) map[by]*epoch {
	t.Helper()
	epochs := make(map[by]*epoch)
	for _, m := range j.all {
		if m.Level != level {
			continue
		}
		ended := make(map[by]bool)
		for _, n := range m.news {
			id := by{m.Life, n.Epoch}
			switch n.Kind {
			case newsAssigned:
				epochs[id] = &epoch{assigned: n.At}
			case newsCommitted:
				if ended[id] {
					t.Errorf("%v: commit of %d after the end of its epoch", id, n.Offset)
				}
				epochs[id].committed = max(epochs[id].committed, n.Offset)
			case newsRevoked:
				ended[id] = true
			case newsLost, newsUnclean:
				ended[id] = n.Kind == newsLost
				epochs[id].excuse = string(n.Kind)
			case newsNoCommit:
				for id, e := range epochs {
					if id.life == m.Life && !ended[id] {
						e.excuse = string(n.Kind)
					}
				}
			}
		}
		for id, e := range epochs {
			if id.life == m.Life && !ended[id] && m.killed {
				e.excuse = "killed"
			}
		}
	}
	return epochs
}

// check reads all topics and looks at each hop.
func (j *job) check(t *testing.T) {
	began := time.Now()
	const most = 10
	report := func(violations []string) {
		for _, v := range violations[:min(most, len(violations))] {
			t.Error(v)
		}
		if n := len(violations) - most; n > 0 {
			t.Errorf("and %d more", n)
		}
	}
	in := j.read(t, j.topics[0])
	if len(in) != *total {
		t.Fatalf("%d records were produced, want %d", len(in), *total)
	}
	for level := range levels {
		out := j.read(t, j.topics[level+1])
		c := &checker{name: fmt.Sprintf("level %d", level+1), in: make(map[place]entry, len(in)), out: out, epochs: j.epochs(t, level)}
		for _, e := range in {
			c.in[e.place] = e
		}
		c.check()
		report(c.violations)
		excused := 0
		for _, e := range c.epochs {
			if e.excuse != "" {
				excused++
			}
		}
		t.Logf("level %d: %d records in, %d out; %d came again, %d of them late; %d assignments, %d of which ended badly",
			level+1, len(in), len(out), c.again, c.late, len(c.epochs), excused)
		in = out
	}
	report(endToEnd(in, min(keys, *total), *total))
	t.Logf("checked in %.1fs", time.Since(began).Seconds())
}
