package realkafka

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

const (
	tailLines = 40
	tailBytes = 16 << 10
)

// logTail returns the last lines of the log that come after the offset from.
func logTail(path string, from int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the broker's log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("read the broker's log: %w", err)
	}
	from = max(from, info.Size()-tailBytes)
	text, err := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	if err != nil {
		return "", fmt.Errorf("read the broker's log: %w", err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	lines = lines[max(0, len(lines)-tailLines):]
	return string(bytes.Join(lines, []byte("\n"))), nil
}

// logSize returns where the log ends now.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // then all of it is new
	}
	return info.Size()
}
