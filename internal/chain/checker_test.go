package chain

import (
	"strings"
	"testing"
	"time"
)

// hop is two topics of one partition and one key: the second has what the
// writers made of the first's records.
func hop(epochs map[by]*epoch, in int, writes ...write) *checker {
	c := &checker{name: "hop", in: make(map[place]entry), epochs: epochs}
	for i := range in {
		p := place{0, int64(i)}
		c.in[p] = entry{place: p, key: "k", n: i}
	}
	for _, w := range writes {
		for _, o := range w.offsets {
			c.out = append(c.out, entry{place: place{0, int64(len(c.out))}, key: "k", n: int(o), by: by{w.life, 1}, of: place{0, o}})
		}
	}
	return c
}

type write struct {
	life    string
	offsets []int64
}

// The checker finds each fault, and no fault where there is none.
func TestChecker(t *testing.T) {
	at := func(seconds int, committed int64, excuse string) *epoch {
		return &epoch{assigned: time.Unix(int64(seconds), 0), committed: committed, excuse: excuse}
	}
	well := map[by]*epoch{{"a", 1}: at(1, 3, ""), {"b", 1}: at(2, 6, "")}
	killed := map[by]*epoch{{"a", 1}: at(1, 1, "killed"), {"b", 1}: at(2, 6, "")}
	for name, tt := range map[string]struct {
		epochs map[by]*epoch
		in     int
		writes []write
		want   string // in a violation; "": there is none
	}{
		"one after the other":           {well, 6, []write{{"a", []int64{0, 1, 2}}, {"b", []int64{3, 4, 5}}}, ""},
		"again what was not committed":  {killed, 6, []write{{"a", []int64{0, 1, 2}}, {"b", []int64{1, 2, 3, 4, 5}}}, ""},
		"late, of one who was killed":   {killed, 4, []write{{"a", []int64{0, 1}}, {"b", []int64{1, 2, 3}}, {"a", []int64{2}}}, ""},
		"lost":                          {well, 6, []write{{"a", []int64{0, 1, 2}}, {"b", []int64{4, 5}}}, "lost: {0 3}"},
		"lost at the end":               {well, 6, []write{{"a", []int64{0, 1, 2, 3, 4}}}, "lost: {0 5}"},
		"twice in an epoch":             {well, 3, []write{{"a", []int64{0, 1, 1, 2}}}, "did offset 1 (k:1) after offset 1"},
		"back in an epoch":              {well, 3, []write{{"a", []int64{0, 2, 1}}}, "did offset 1 (k:1) after offset 2"},
		"a later one first":             {well, 3, []write{{"a", []int64{0, 2}}, {"b", []int64{1}}}, "out of order: offset 1 (k:1) came for the first time after offset 2"},
		"again without an excuse":       {well, 6, []write{{"a", []int64{0, 1, 2, 3}}, {"b", []int64{3, 4, 5}}}, "done again after {a 1}, who gave up"},
		"again though it was committed": {killed, 6, []write{{"a", []int64{0, 1, 2}}, {"b", []int64{0, 1, 2, 3, 4, 5}}}, "{a 1} had committed 1"},
		"late, of one who was well":     {well, 4, []write{{"a", []int64{0, 1, 2, 3}}, {"b", []int64{1}}}, "by {b 1}, who was well"},
		"by nobody":                     {well, 2, []write{{"a", []int64{0}}, {"c", []int64{1}}}, "{c 1}, which had no partition"},
		"of nothing":                    {well, 1, []write{{"a", []int64{0, 7}}}, "{0 7}, which is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			c := hop(tt.epochs, tt.in, tt.writes...)
			c.check()
			got := strings.Join(c.violations, "\n")
			if tt.want == "" && got != "" {
				t.Errorf("found what is not there: %s", got)
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCheckerEndToEnd(t *testing.T) {
	topic := func(ns ...int) (es []entry) {
		for _, n := range ns {
			es = append(es, entry{key: "k", n: n})
		}
		return es
	}
	if got := endToEnd(topic(0, 1, 0, 1, 2), 1, 3); got != nil {
		t.Errorf("found what is not there: %v", got)
	}
	for _, bad := range [][]entry{topic(0, 1), topic(0, 2, 1), topic(0, 1, 2, 3), nil} {
		if endToEnd(bad, 1, 3) == nil {
			t.Errorf("found nothing wrong with %v", bad)
		}
	}
}
