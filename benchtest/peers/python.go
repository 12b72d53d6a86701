package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

const pythonVersion = "2.48.0" // of sentry-arroyo

//go:embed python/peer.py
var pythonScript string

// pythons are Sentry's Arroyo for Python: a StreamProcessor with RunTask and
// CommitOffsets. The tuned one has librdkafka's queue of 100,000 records instead
// of 10,000, and fetches on 10 ms after it was full, instead of a second.
func pythons(interpreter string) []peer {
	of := func(variant string) peer {
		return peer{name: "sentry-arroyo (Python)", variant: variant, slow: true, noWork: true,
			command: func(ctx context.Context, j job) (*exec.Cmd, error) {
				return exec.CommandContext(ctx, interpreter, "-c", pythonScript,
					j.Address, bench.Topic, j.Group, strconv.Itoa(j.Layout.Records), variant), nil
			}}
	}
	return []peer{of(defaults), of(tuned)}
}

// pythonInterpreter returns that of the virtual environment, and whether it is
// complete.
func pythonInterpreter() (path string, ok bool, err error) {
	dir, err := cacheDir("sentry-arroyo-" + pythonVersion)
	if err != nil {
		return "", false, err
	}
	path = filepath.Join(dir, "bin", "python")
	if runtime.GOOS == "windows" {
		path = filepath.Join(dir, "Scripts", "python.exe")
	}
	_, err = os.Stat(filepath.Join(dir, "complete"))
	return path, err == nil, nil
}

// installPython makes the virtual environment if it is not there yet.
func installPython(ctx context.Context) (interpreter string, err error) {
	interpreter, ok, err := pythonInterpreter()
	if ok || err != nil {
		return interpreter, err
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", fmt.Errorf("install Python 3: %w", err)
	}
	dir := filepath.Dir(filepath.Dir(interpreter))
	if err := command(ctx, python, "-m", "venv", "--clear", dir); err != nil {
		return "", err
	}
	if err := command(ctx, interpreter, "-m", "pip", "install", "--quiet", "--only-binary=:all:",
		"--disable-pip-version-check", "sentry-arroyo=="+pythonVersion); err != nil {
		return "", err
	}
	return interpreter, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644)
}
