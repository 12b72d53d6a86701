package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// envPostgres names a database to use, as postgres://user@host/name.
	envPostgres = "ARROYO_TEST_POSTGRES"
	// envRequire, set to 1, fails tests that would be skipped.
	envRequire = "ARROYO_REQUIRE_POSTGRES"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		running.stop()
	}
	os.Exit(code)
}

// database returns how to reach a database that has the tables of schema.sql,
// all empty and of this test alone. Call it outside of a bubble.
func database(t *testing.T) *pgxpool.Config {
	t.Helper()
	address, err := serverAddress()
	if err != nil {
		if os.Getenv(envRequire) == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	cfg, err := pgxpool.ParseConfig(address)
	if err != nil {
		t.Fatalf("%s: %v", envPostgres, err)
	}
	schema, err := os.ReadFile("schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	name := "arroyo_test_" + strings.ToLower(rand.Text())
	execute(t, cfg, "CREATE SCHEMA "+name)
	t.Cleanup(func() { execute(t, cfg, "DROP SCHEMA "+name+" CASCADE") })
	tests := cfg.Copy()
	tests.ConnConfig.RuntimeParams["search_path"] = name
	execute(t, tests, string(schema))
	return tests
}

// execute runs statements by a connection of their own.
func execute(t *testing.T, cfg *pgxpool.Config, statements string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.PgConn().Exec(ctx, statements).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

var (
	running       *server // TestMain stops it
	serverAddress = sync.OnceValues(func() (string, error) {
		if address := os.Getenv(envPostgres); address != "" {
			return address, nil
		}
		bin := postgresBin()
		if bin == "" {
			return "", fmt.Errorf("no PostgreSQL: install one (the tests find initdb in PATH or in /usr/lib/postgresql/*/bin and start a server of their own), or set %s=postgres://user@host/database", envPostgres)
		}
		var err error
		running, err = startServer(bin)
		if err != nil {
			return "", fmt.Errorf("no PostgreSQL: the one in %s does not start: %w; or set %s=postgres://user@host/database", bin, err, envPostgres)
		}
		return running.address, nil
	})
)

// postgresBin returns the folder of PostgreSQL's programs, "" if there is none.
func postgresBin() string {
	var candidates []string
	if path, err := exec.LookPath("initdb"); err == nil {
		candidates = append(candidates, path)
	}
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.Reverse(installed)
	for _, initdb := range append(candidates, installed...) {
		if initdb, err := filepath.EvalSymlinks(initdb); err == nil {
			dir := filepath.Dir(initdb)
			if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// server is a PostgreSQL that keeps everything in one folder, its socket too.
type server struct {
	dir     string
	address string
	cmd     *exec.Cmd
	exited  chan struct{}
}

func startServer(bin string) (_ *server, err error) {
	s := &server{exited: make(chan struct{})}
	if s.dir, err = os.MkdirTemp("", "arroyo-pg"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(s.dir)
		}
	}()
	attributes, err := processAttributes(s.dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "arroyo", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = s.dir, attributes
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, lastLine(out))
	}
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir,
		"-c", "listen_addresses=", "-c", "fsync=off", "-c", "logging_collector=off")
	s.cmd.Dir, s.cmd.SysProcAttr = s.dir, attributes
	logName := filepath.Join(s.dir, "log")
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	started := make(chan error)
	go func() {
		// Linux ends the process when the thread that started it does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.exited)
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait() // how it ended is in its log
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	s.address = fmt.Sprintf("host=%s user=arroyo dbname=postgres", s.dir)
	if err := s.awaitReady(); err != nil {
		out, _ := os.ReadFile(logName)
		s.stop()
		return nil, fmt.Errorf("%w: %s", err, lastLine(out))
	}
	return s, nil
}

func (s *server) awaitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.address)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.exited:
			return errors.New("postgres ended at once")
		case <-ctx.Done():
			return err
		}
	}
}

func (s *server) stop() {
	// It is a fast shutdown, which does not wait for clients.
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-s.exited:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	os.RemoveAll(s.dir)
}

// lastLine returns the last line of a log, or of its errors if there are any.
func lastLine(out []byte) (last string) {
	failed := false
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if fatal := strings.Contains(line, "FATAL"); line != "" && (fatal || !failed) {
			last, failed = line, failed || fatal
		}
	}
	return last
}
