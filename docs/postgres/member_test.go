package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
)

const (
	group = "postgres"
	topic = "events"
)

// member is a loop on a host of its own, with a database that can be watched.
type member struct {
	host      *memkafka.Host
	wire      *wire
	delivered atomic.Int64 // records that Poll took from kgo
	cancel    context.CancelFunc
	done      chan struct{}
	err       error // of the loop, once done is closed
}

// startMember starts a loop. What happens to its statements is up to the wire.
func startMember(t *testing.T, broker *memkafka.Broker, database *pgxpool.Config, w *wire, opts ...kgo.Opt) *member {
	t.Helper()
	m := &member{host: broker.Host(), wire: w, done: make(chan struct{})}
	cfg := database.Copy()
	cfg.ConnConfig.Tracer = w
	cfg.ConnConfig.DialFunc = w.dial
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := arroyo.NewConsumer(group, []string{topic},
		arroyo.ClientOptions(m.host.ClientOptions()...),
		// Slices of about 20 records, so that there are many transactions.
		arroyo.ClientOptions(kgo.FetchMaxPartitionBytes(2000), kgo.WithHooks(m)),
		arroyo.ClientOptions(opts...))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		defer db.Close()
		m.err = loop(ctx, consumer, db)
	}()
	t.Cleanup(func() {
		cancel()
		<-m.done
	})
	return m
}

// stop ends the loop in good order.
func (m *member) stop(t *testing.T) {
	t.Helper()
	m.cancel()
	<-m.done
	if m.err != nil {
		t.Errorf("loop: %v", m.err)
	}
}

// OnFetchRecordUnbuffered implements kgo.HookFetchRecordUnbuffered.
func (m *member) OnFetchRecordUnbuffered(_ *kgo.Record, polled bool) {
	if polled {
		m.delivered.Add(1)
	}
}

// wire is a member's way to the database.
type wire struct {
	before, after func(statement string) // may be nil
	rollbacks     atomic.Int64

	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.New("this member has crashed")
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

// cut breaks all connections, for good.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for _, conn := range w.conns {
		conn.Close()
	}
}

type statementKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (w *wire) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == "rollback" {
		w.rollbacks.Add(1)
	}
	if w.before != nil {
		w.before(data.SQL)
	}
	return context.WithValue(ctx, statementKey{}, data.SQL)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w *wire) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if statement, _ := ctx.Value(statementKey{}).(string); w.after != nil {
		w.after(statement)
	}
}

// table is what is in the database.
type table struct{ db *pgxpool.Pool }

func openTable(t *testing.T, database *pgxpool.Config) table {
	t.Helper()
	db, err := pgxpool.NewWithConfig(t.Context(), database.Copy())
	if err != nil {
		t.Fatal(err)
	}
	return table{db}
}

func (b table) number(t *testing.T, query string) (n int) {
	t.Helper()
	if err := b.db.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// await waits until there are that many records.
func (b table) await(t *testing.T, n int) {
	t.Helper()
	for range 180 {
		if b.number(t, `SELECT count(*) FROM records`) >= n {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("%d records are stored, want %d", b.number(t, `SELECT count(*) FROM records`), n)
}

// expectOnce checks that the table has every record of the topic once, in the
// order of their offsets as far as anybody can tell, and that the stored
// offsets are the ends of their partitions.
func (b table) expectOnce(t *testing.T, broker *memkafka.Broker) {
	t.Helper()
	type key struct {
		partition int32
		offset    int64
	}
	stored := make(map[key]string)
	rows, err := b.db.Query(t.Context(), `SELECT partition, pos, value FROM records`)
	if err != nil {
		t.Fatal(err)
	}
	var (
		k     key
		value []byte
	)
	if _, err := pgx.ForEachRow(rows, []any{&k.partition, &k.offset, &value}, func() error {
		if _, ok := stored[k]; ok {
			t.Errorf("offset %d of partition %d is stored twice", k.offset, k.partition)
		}
		stored[k] = string(value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	records := broker.Records(topic)
	for _, r := range records {
		if got, ok := stored[key{r.Partition, r.Offset}]; !ok || got != string(r.Value) {
			t.Errorf("offset %d of partition %d is stored as %q, want %q", r.Offset, r.Partition, got, r.Value)
		}
	}
	if len(stored) != len(records) {
		t.Errorf("%d records are stored, want %d", len(stored), len(records))
	}
	for partition, end := range broker.End(topic) {
		var next int64
		err := b.db.QueryRow(t.Context(), `SELECT next FROM offsets WHERE topic = $1 AND partition = $2`, topic, partition).Scan(&next)
		if err != nil || next != end {
			t.Errorf("partition %d is stored up to %d (%v), want its end %d", partition, next, err, end)
		}
	}
}
