package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a service in memory, and the network to it. It answers after half a
// second. Addresses begin with a country; others it does not know.
type server struct {
	mu       sync.Mutex
	calls    int
	now      int // how many are being answered
	most     int // at once
	attempts map[string]int
	trouble  func(address string, attempt int) (status int, hang bool)
}

// RoundTrip makes a server of a client's transport: requests are handled where
// they are made.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	address := path.Base(r.URL.Path)
	attempt := s.begin(address)
	defer s.end()
	status, takes := http.StatusOK, 500*time.Millisecond
	if s.trouble != nil {
		trouble, hang := s.trouble(address, attempt)
		if hang {
			takes = time.Hour
		}
		status = max(status, trouble)
	}
	select {
	case <-time.After(takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	country, _, known := strings.Cut(address, "-")
	if !known {
		status = http.StatusNotFound
	}
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"country":%q}`, country)
	return w.Result(), nil
}

func (s *server) begin(address string) (attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.now++
	s.most = max(s.most, s.now)
	if s.attempts == nil {
		s.attempts = make(map[string]int)
	}
	s.attempts[address]++
	return s.attempts[address]
}

func (s *server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
}

func newBroker(t *testing.T) *memkafka.Broker {
	return memkafka.New(t, memkafka.Topic("visits", 4), memkafka.Topic("visits.enriched", 4), memkafka.Topic("visits.dead", 1))
}

func start(t *testing.T, broker *memkafka.Broker, s *server) (stop func() error) {
	x := &service{url: "http://geo/countries", client: &http.Client{Transport: s}}
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, x, broker.ClientOptions()...) })
}

// visit produces visits of users, in turns, and returns the pages of each.
func visit(broker *memkafka.Broker, visits, users int, address func(i int) string) map[string][]string {
	pages := make(map[string][]string)
	var records []*kgo.Record
	for i := range visits {
		user, page := fmt.Sprint("user-", i%users), fmt.Sprint("/", i)
		value, _ := json.Marshal(Visit{User: user, Address: address(i), Page: page})
		records = append(records, &kgo.Record{Topic: "visits", Partition: int32(i % users % 4), Key: []byte(user), Value: value})
		pages[user] = append(pages[user], page)
	}
	broker.ProduceRecords(records...)
	return pages
}

// enriched returns the pages of each user in the output, and checks their
// countries.
func enriched(t *testing.T, broker *memkafka.Broker) map[string][]string {
	t.Helper()
	pages := make(map[string][]string)
	for _, r := range broker.Records("visits.enriched") {
		var v Visit
		if err := json.Unmarshal(r.Value, &v); err != nil {
			t.Fatal(err)
		}
		if v.Country == "" || !strings.HasPrefix(v.Address, v.Country+"-") || v.User != string(r.Key) {
			t.Errorf("with the key %q: %s", r.Key, r.Value)
		}
		pages[v.User] = append(pages[v.User], v.Page)
	}
	return pages
}

func swiss(i int) string { return fmt.Sprint("CH-", i) }

// 4,000 calls of half a second each, 200 at once, take ten seconds; each user's
// visits stay in order.
func TestTwoHundredAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := new(server)
		want := visit(broker, 4000, 400, swiss)
		began := time.Now()
		stop := start(t, broker, s)
		broker.WaitCaughtUp("enrich", "visits")
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("it took %v, want little more than 10s", took)
		}
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if s.most != 200 {
			t.Errorf("%d calls were made at once, want 200", s.most)
		}
		if diff := cmp.Diff(want, enriched(t, broker)); diff != "" {
			t.Errorf("each user's pages, in order (-want +got):\n%s", diff)
		}
	})
}

// Calls that fail or hang are made again, and hold up nobody but their user.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := &server{trouble: func(address string, attempt int) (int, bool) {
			switch {
			case attempt > 2:
				return 0, false
			case strings.HasSuffix(address, "7"):
				return []int{429, 503}[attempt-1], false
			case strings.HasSuffix(address, "13"):
				return 0, true
			}
			return 0, false
		}}
		want := visit(broker, 1000, 100, swiss)
		stop := start(t, broker, s)
		broker.WaitCaughtUp("enrich", "visits")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if diff := cmp.Diff(want, enriched(t, broker)); diff != "" {
			t.Errorf("each user's pages, in order (-want +got):\n%s", diff)
		}
		if want := 1000 + 2*100 + 2*10; s.calls != want {
			t.Errorf("%d calls, want %d: two more for each that failed or hung", s.calls, want)
		}
		if n := len(broker.Records("visits.dead")); n != 0 {
			t.Errorf("%d dead letters, want none", n)
		}
	})
}

// An address that is not known makes a dead letter, after one call.
func TestUnknownAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := new(server)
		visit(broker, 10, 5, func(i int) string {
			if i == 3 {
				return "nowhere"
			}
			return swiss(i)
		})
		stop := start(t, broker, s)
		broker.WaitCaughtUp("enrich", "visits")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		dead := broker.Records("visits.dead")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters, want 1", len(dead))
		}
		original, origin, err := arroyo.ReadDeadLetter(dead[0])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(original.Value), "nowhere") || !strings.Contains(origin.Reason, "404 Not Found") {
			t.Errorf("the dead letter is %s, because of %q", original.Value, origin.Reason)
		}
		if got := enriched(t, broker)["user-3"]; !slices.Equal(got, []string{"/8"}) || s.calls != 10 {
			t.Errorf("user 3 has %q after %d calls, want the other visit after 10", got, s.calls)
		}
	})
}

// What another attempt does not change ends the program.
func TestMistakeOfOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := &server{trouble: func(string, int) (int, bool) { return http.StatusForbidden, false }}
		visit(broker, 1, 1, swiss)
		stop := start(t, broker, s)
		time.Sleep(time.Minute)
		err := stop()
		if status, ok := errors.AsType[statusError](err); !ok || status != http.StatusForbidden || s.calls != 1 {
			t.Errorf("run: %v after %d calls, want 403 after one", err, s.calls)
		}
		if at := broker.Committed("enrich", "visits")[0]; at != 0 {
			t.Errorf("committed %d, want 0", at)
		}
	})
}

// While the service is down the program stops at once and in good order; the
// next run goes on.
func TestServiceIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		want := visit(broker, 1000, 100, swiss)
		down := &server{trouble: func(string, int) (int, bool) { return http.StatusBadGateway, false }}
		stop := start(t, broker, down)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the shutdown took %v, want no more than a call and the commit", took)
		}

		stop = start(t, broker, new(server))
		broker.WaitCaughtUp("enrich", "visits")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if diff := cmp.Diff(want, enriched(t, broker)); diff != "" {
			t.Errorf("each user's pages, in order (-want +got):\n%s", diff)
		}
	})
}
