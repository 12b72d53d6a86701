package main

import (
	"context"
	"embed"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/arroyo-go/arroyo/benchtest/internal/bench"
)

//go:embed rust/Cargo.toml rust/Cargo.lock rust/src/main.rs
var rustSource embed.FS

// rusts are Sentry's Arroyo for Rust: a StreamProcessor with RunTask and
// CommitOffsets. The tuned one fetches on 10 ms after librdkafka's queue was
// full, instead of a second.
func rusts(program string) []peer {
	of := func(variant string) peer {
		return peer{name: "sentry-arroyo (Rust)", variant: variant, slow: true, noWork: true,
			command: func(ctx context.Context, j job) (*exec.Cmd, error) {
				return exec.CommandContext(ctx, program, j.Address, bench.Topic, j.Group, strconv.Itoa(j.Layout.Records), variant), nil
			}}
	}
	return []peer{of(defaults), of(tuned)}
}

// buildRust builds the program in the cache and returns its path.
func buildRust(ctx context.Context, log io.Writer) (program string, err error) {
	dir, err := cacheDir("rust")
	if err != nil {
		return "", err
	}
	err = fs.WalkDir(rustSource, "rust", func(path string, d fs.DirEntry, err error) error {
		to := filepath.Join(filepath.Dir(dir), filepath.FromSlash(path))
		if err != nil || d.IsDir() {
			return err
		}
		text, err := rustSource.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
	if err != nil {
		return "", err
	}
	cargo := exec.CommandContext(ctx, "cargo", "build", "--release", "--locked")
	cargo.Dir = dir
	cargo.Stdout, cargo.Stderr = log, log
	if err := cargo.Run(); err != nil {
		return "", err
	}
	return filepath.Join(dir, "target", "release", "peer"), nil
}
