package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// cacheDir returns a folder in the user's cache, where libraries of other
// languages are installed.
func cacheDir(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "arroyo", "peers", name), nil
}

// command runs a command and returns the last line of what it writes as an
// error if it fails.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, lastLine(string(out)))
	}
	return nil
}
