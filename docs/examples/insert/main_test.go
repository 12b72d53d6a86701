package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// server is an index in memory, and the network to it.
type server struct {
	mu       sync.Mutex
	down     bool
	busy     map[string]int // by ID, how often there is no time for it
	stored   map[string]stored
	requests []int // how many documents each had
}

type stored struct {
	Product
	version int64
}

func newServer() *server { return &server{busy: make(map[string]int), stored: make(map[string]stored)} }

// RoundTrip makes a server of a client's transport: requests are handled where
// they are made.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	if r.URL.Path != "/products/_bulk" {
		http.NotFound(w, r)
		return
	}
	var items []map[string]answer
	for lines := json.NewDecoder(r.Body); ; {
		var a action
		var p Product
		if err := lines.Decode(&a); err == io.EOF {
			break
		}
		if err := lines.Decode(&p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		items = append(items, map[string]answer{"index": s.store(p, a.Index.Version)})
	}
	s.requests = append(s.requests, len(items))
	json.NewEncoder(w).Encode(map[string]any{"items": items})
}

func (s *server) store(p Product, version int64) (a answer) {
	switch {
	case p.Price < 0:
		a.Status = http.StatusBadRequest
		a.Error.Reason = "price: out of range"
	case s.busy[p.ID] > 0:
		s.busy[p.ID]--
		a.Status = http.StatusTooManyRequests
	case s.stored[p.ID].version > version:
		a.Status = http.StatusConflict
	default:
		s.stored[p.ID] = stored{p, version}
		a.Status = http.StatusCreated
	}
	return a
}

func (s *server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func start(t *testing.T, broker *memkafka.Broker, s *server) (stop func() error) {
	x := &index{url: "http://index/products", client: &http.Client{Transport: s}}
	return memkafka.Start(t, func(ctx context.Context) error { return run(ctx, x, broker.ClientOptions()...) })
}

func newBroker(t *testing.T) *memkafka.Broker {
	return memkafka.New(t, memkafka.Topic("products", 1), memkafka.Topic("products.dead", 1))
}

// change produces new versions of products.
func change(broker *memkafka.Broker, products ...Product) {
	for _, p := range products {
		value, _ := json.Marshal(p)
		broker.ProduceRecords(&kgo.Record{Topic: "products", Key: []byte(p.ID), Value: value})
	}
}

func numbered(n int) (products []any) {
	for i := range n {
		products = append(products, Product{ID: fmt.Sprint(i), Name: "tea", Price: 1})
	}
	return products
}

// Each row has a verdict of its own: what the index refuses is a dead letter,
// what it has no time for is sent again, alone.
func TestRowsFareDifferently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newServer()
		s.busy["cup"] = 2
		change(broker,
			Product{"tea", "green tea", 6.90},
			Product{"pot", "pot", -1},
			Product{"cup", "cup", 18})
		broker.Produce("products", "not JSON")
		change(broker, Product{"can", "can", 4})
		stop := start(t, broker, s)
		broker.WaitCaughtUp("search", "products")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}

		want := map[string]stored{
			"tea": {Product{"tea", "green tea", 6.90}, 0},
			"cup": {Product{"cup", "cup", 18}, 2},
			"can": {Product{"can", "can", 4}, 4},
		}
		if diff := cmp.Diff(want, s.stored, cmp.AllowUnexported(stored{})); diff != "" {
			t.Errorf("the index has (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]int{4, 1, 1}, s.requests); diff != "" {
			t.Errorf("documents of each request (-want +got):\n%s", diff)
		}
		reasons := make(map[string]string)
		for _, r := range broker.Records("products.dead") {
			original, origin, err := arroyo.ReadDeadLetter(r)
			if err != nil {
				t.Fatal(err)
			}
			reasons[string(original.Value)] = origin.Reason
		}
		if len(reasons) != 2 {
			t.Errorf("dead letters: %v, want two", reasons)
		}
		if got, want := reasons[`{"id":"pot","name":"pot","price":-1}`], "the index refused it: price: out of range"; got != want {
			t.Errorf("the pot was rejected because of %q, want %q", got, want)
		}
		if reasons["not JSON"] == "" {
			t.Error("what is no JSON is no dead letter")
		}
	})
}

// What is sent again does not overwrite what came later.
func TestLaterVersionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newServer()
		s.busy["tea"] = 1 // the first version, in the first request
		change(broker, Product{"tea", "tea", 1}, Product{"tea", "tea", 2})
		stop := start(t, broker, s)
		broker.WaitCaughtUp("search", "products")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if got := s.stored["tea"]; got.Price != 2 || len(s.requests) != 2 {
			t.Errorf("the index has %+v after %d requests, want the later price after 2", got, len(s.requests))
		}
	})
}

// While the index is down, nothing is committed; a shutdown is clean, and the
// next run writes everything.
func TestIndexIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newBroker(t)
		s := newServer()
		s.setDown(true)
		stop := start(t, broker, s)
		broker.ProduceJSON("products", numbered(1200)...)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the shutdown took %v", took)
		}
		if at := broker.Committed("search", "products")[0]; at != 0 {
			t.Errorf("committed %d, want 0", at)
		}

		stop = start(t, broker, s)
		time.Sleep(time.Minute)
		s.setDown(false)
		broker.WaitCaughtUp("search", "products")
		if err := stop(); err != nil {
			t.Errorf("run: %v", err)
		}
		if n := len(s.stored); n != 1200 {
			t.Errorf("the index has %d products, want 1200", n)
		}
		if diff := cmp.Diff([]int{500, 500, 200}, s.requests); diff != "" {
			t.Errorf("documents of each request (-want +got):\n%s", diff)
		}
		if n := len(broker.Records("products.dead")); n != 0 {
			t.Errorf("%d dead letters, want none: the products are well", n)
		}
	})
}
