package clients_test

import (
	"context"
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/client.py
var script string

// TestPython runs librdkafka, by confluent-kafka for Python.
func TestPython(t *testing.T) {
	python := newPython(t)
	broker := newBroker(t)
	skip(broker)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-", broker.Addr(), topic, group, strconv.Itoa(produced))
	cmd.Stdin = strings.NewReader(script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	check(t, broker, strings.Fields(string(out)))
}

// newPython makes a virtual environment with confluent-kafka and returns its interpreter. It skips the test if it can't.
func newPython(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	lack := func(what string, err error) {
		t.Helper()
		if os.Getenv("ARROYO_REQUIRE_PYTHON") == "1" {
			t.Fatalf("%s: %v", what, err)
		}
		t.Skipf("%s: %v", what, err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		lack("no Python", err)
	}
	env := filepath.Join(t.TempDir(), "venv")
	if out, err := exec.CommandContext(ctx, python, "-m", "venv", env).CombinedOutput(); err != nil {
		lack("python3 -m venv says "+lastLine(out), err)
	}
	python = filepath.Join(env, "bin", "python")
	install := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--only-binary=:all:",
		"--disable-pip-version-check", "confluent-kafka>=2.5,<3")
	if out, err := install.CombinedOutput(); err != nil {
		lack("pip install confluent-kafka says "+lastLine(out), err)
	}
	return python
}

func lastLine(out []byte) string {
	s := strings.TrimSpace(string(out))
	return strconv.Quote(s[strings.LastIndexByte(s, '\n')+1:])
}
