package arroyo_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/arroyo-go/arroyo"
	"github.com/arroyo-go/arroyo/memkafka"
	"github.com/arroyo-go/arroyo/strategies"
)

// leaks collects everything that people and log collectors get to see.
type leaks struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *leaks) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *leaks) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// look asks a processor for all that it tells of itself.
func (l *leaks) look(p *arroyo.Processor) {
	fmt.Fprintf(l, "%+v\n%#v\n%v\n", p.Status(), p.Status(), p.Health())
	for _, h := range []http.Handler{p.StatusHandler(), p.HealthHandler()} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?password=x", nil))
		fmt.Fprintln(l, w.Header(), w.Body)
	}
}

// err takes in an error, however it is printed.
func (l *leaks) err(err error) { fmt.Fprintf(l, "%v\n%+v\n%#v\n", err, err, err) }

// expectNone checks that none of the secrets is in there, plain or encoded.
func (l *leaks) expectNone(t *testing.T, secrets ...string) {
	t.Helper()
	text := l.String()
	for _, s := range secrets {
		for how, form := range map[string]string{
			"plain": s, "in base64": base64.StdEncoding.EncodeToString([]byte(s)), "in hex": hex.EncodeToString([]byte(s)),
			"as bytes": strings.Trim(fmt.Sprint([]byte(s)), "[]"),
		} {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("a secret shows %s: ...%.200q", how, text[max(0, i-100):])
			}
		}
	}
}

// slogKgo hands kgo's log lines on, as an application does that wants them all.
type slogKgo struct{ log *slog.Logger }

func (slogKgo) Level() kgo.LogLevel { return kgo.LogLevelDebug }
func (l slogKgo) Log(_ kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug(msg, keyvals...)
}

// Passwords are in no log line, also of kgo at its most talkative, in no error
// and in no status, whatever goes wrong.
func TestSecretsOfSASL(t *testing.T) {
	const right, wrong = "hunter2-the-right-one", "correct-horse-the-wrong-one"
	synctest.Test(t, func(t *testing.T) {
		var l leaks
		log := slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: slog.LevelDebug}))
		broker := memkafka.New(t, memkafka.Topic(topic, 2), memkafka.SASL("ann", right))
		run := func(mechanism kgo.Opt, meanwhile func(*memkafka.Host)) {
			host := broker.Host()
			opts := append(host.ClientOptions(), mechanism, kgo.WithLogger(slogKgo{log}))
			c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(opts...), arroyo.Start(arroyo.StartLatest()))
			if err != nil {
				t.Fatal(err)
			}
			p, err := arroyo.NewProcessor(c, strategies.ForEach(func(context.Context, arroyo.Message[*kgo.Record]) error { return nil }),
				arroyo.Logger(log), arroyo.DrainTimeout(5*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(5 * time.Second)
			l.look(p)
			meanwhile(host)
			l.look(p)
			cancel()
			l.err(<-done)
			l.look(p)
		}
		run(saslPlain("ann", right), func(host *memkafka.Host) {
			produce(broker, 10)
			refused := broker.Fail(kmsg.OffsetCommit, kerr.GroupAuthorizationFailed)
			time.Sleep(20 * time.Second)
			l.look(neverRun(t, host, right))
			refused.Heal()
			broker.Kick(group, broker.Group(group).Members[0].ID)
			time.Sleep(10 * time.Second)
			host.Cut()
			time.Sleep(time.Minute)
			host.Heal()
			time.Sleep(time.Minute)
			host.BlackHole()
			time.Sleep(time.Minute)
		})
		run(saslPlain("ann", wrong), func(*memkafka.Host) { time.Sleep(time.Minute) })
		run(kgo.SASL(scram.Auth{User: "ann", Pass: right}.AsSha256Mechanism()), func(*memkafka.Host) { time.Sleep(time.Minute) })
		for _, contradiction := range []kgo.Opt{kgo.DisableAutoCommit(), kgo.AutoCommitMarks(), kgo.ConsumeTopics("x"), kgo.SessionTimeout(-1), kgo.SeedBrokers("::::")} {
			c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(saslPlain("ann", right), contradiction))
			if err == nil {
				c.Close()
			}
			l.err(err)
		}
		if !strings.Contains(l.String(), "SASL_AUTHENTICATION_FAILED") || !strings.Contains(l.String(), "opening connection to broker") {
			t.Errorf("the test does not see what it is to look through:\n%.2000s", l.String())
		}
		l.expectNone(t, right, wrong)
	})
}

// neverRun makes a processor that was never run.
func neverRun(t *testing.T, host *memkafka.Host, password string) *arroyo.Processor {
	t.Helper()
	c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(append(host.ClientOptions(), saslPlain("ann", password))...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p, err := arroyo.NewProcessor(c, strategies.Noop[*kgo.Record](), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Nor is the private key of a client's certificate, with a handshake that
// succeeds and with one that fails.
func TestSecretsOfTLS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"broker"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(nil, template, template, public, private)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AddCert(leaf)
		cert := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
		var l leaks
		log := slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: slog.LevelDebug}))
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		dial := dialerOf(t, broker)
		var seen ledger
		run := func(config *tls.Config) error {
			opts := append(broker.ClientOptions(), kgo.WithLogger(slogKgo{log}), kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				if err != nil {
					return conn, err
				}
				ours, theirs := net.Pipe()
				server := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, Time: time.Now})
				go relay(server, conn)
				return tls.Client(ours, config), nil
			}))
			c, err := arroyo.NewConsumer(group, []string{topic}, arroyo.ClientOptions(opts...))
			if err != nil {
				t.Fatal(err)
			}
			p, err := arroyo.NewProcessor(c, seen.by("m"), arroyo.Logger(log))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			time.AfterFunc(10*time.Second, func() { l.look(p) })
			err = p.Run(ctx)
			l.err(err)
			l.look(p)
			return err
		}
		good := &tls.Config{ServerName: "broker", RootCAs: roots, Certificates: []tls.Certificate{cert}, Time: time.Now}
		if err := run(good); err != nil || len(seen.all()) != 10 {
			t.Fatalf("Run: %v, after %d of 10 records", err, len(seen.all()))
		}
		bad := good.Clone()
		bad.ServerName = "somebody else"
		_ = run(bad)
		if !strings.Contains(l.String(), "somebody else") {
			t.Errorf("the test does not see the handshake fail:\n%.2000s", l.String())
		}
		l.expectNone(t, string(private.Seed()), string(private))
	})
}

// relay copies both ways until one end closes.
func relay(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			a.Close()
			b.Close()
		})
	}
	wg.Wait()
}

// dialerOf returns how clients reach the broker.
func dialerOf(t *testing.T, broker *memkafka.Broker) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	client, err := kgo.NewClient(broker.ClientOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	dial, ok := client.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
	if !ok {
		t.Fatal("the broker's client options have no dialer")
	}
	return dial
}

// The handlers only read: whatever they are asked, and how often, nothing
// changes, neither here nor at the brokers.
func TestHandlersChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := memkafka.New(t, memkafka.Topic(topic, 2))
		produce(broker, 10)
		var ledger ledger
		m := startMember(t, broker, ledger.by("m"), nil, arroyo.CommitInterval(time.Hour))
		broker.WaitStable(group, 1)
		time.Sleep(time.Second)
		log, status := broker.Log(), m.Status()
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "SHUTDOWN"} {
			for _, path := range []string{"/", "/pause", "/shutdown?now=1", "/?" + strings.Repeat("x", 10_000)} {
				for name, h := range map[string]http.Handler{"status": m.StatusHandler(), "health": m.HealthHandler()} {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(`{"State":"ended"}`)))
					want := http.StatusOK
					if method != http.MethodGet && method != http.MethodHead {
						want = http.StatusMethodNotAllowed
						if allow := w.Header().Get("Allow"); allow != "GET, HEAD" {
							t.Errorf("%s %s: Allow is %q", method, name, allow)
						}
					}
					if w.Code != want {
						t.Errorf("%s %s: %d, want %d", method, name, w.Code, want)
					}
				}
			}
		}
		synctest.Wait()
		if diff := cmp.Diff(status, m.Status(), cmp.AllowUnexported(arroyo.Status{})); diff != "" {
			t.Errorf("the status has changed:\n%s", diff)
		}
		if diff := cmp.Diff(log, broker.Log()); diff != "" {
			t.Errorf("the brokers were asked for something:\n%s", diff)
		}
		m.shutDown(t)
	})
}
