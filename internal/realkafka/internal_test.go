package realkafka

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersionIsThatOfPom(t *testing.T) {
	v, err := Version()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(pom), "<kafka.version>"+v+"</kafka.version>") {
		t.Errorf("Version() = %q, which pom.xml does not have", v)
	}
}

func TestJavaMajor(t *testing.T) {
	for out, want := range map[string]int{
		`openjdk version "17.0.15" 2025-04-15`:            17,
		`openjdk version "25" 2025-09-16`:                 25,
		`openjdk version "26-ea" 2026-03-17`:              26,
		`java version "1.8.0_402"`:                        8,
		"Picked up JAVA_TOOL_OPTIONS: -X\nversion \"21\"": 21,
	} {
		if got, err := javaMajor([]byte(out)); err != nil || got != want {
			t.Errorf("javaMajor(%q) = %d, %v, want %d", out, got, err, want)
		}
	}
	if _, err := javaMajor([]byte("no Java runtime present")); err == nil {
		t.Error("javaMajor found a version where there is none")
	}
}

func TestUnavailableSaysWhatToDoInOneLine(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no jars":       {envLibs: t.TempDir()},
		"relative path": {envLibs: "libs"},
		"no java":       {envJavaHome: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			_, err := Open(t.Context(), Options{})
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("Open: %v, want %v", err, ErrUnavailable)
			}
			text := err.Error()
			for _, want := range []string{"internal/realkafka/fetch", envBrokers + "=host:port"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not have %q", text, want)
				}
			}
			if strings.Contains(text, "\n") {
				t.Errorf("%q is more than a line", text)
			}
		})
	}
}

func TestExternalBrokers(t *testing.T) {
	t.Setenv(envBrokers, " a:1, b:2,")
	if got := externalBrokers(); len(got) != 2 || got[0] != "a:1" || got[1] != "b:2" {
		t.Errorf("externalBrokers() = %q, want a:1 and b:2", got)
	}
	t.Setenv(envBrokers, "")
	if got := externalBrokers(); got != nil {
		t.Errorf("externalBrokers() = %q, want none", got)
	}
}

func TestPropertiesKeepBackslashes(t *testing.T) {
	got := string(properties(map[string]string{"b": "1", "a": `x\y`}))
	if want := "a=x\\\\y\nb=1\n"; got != want {
		t.Errorf("properties wrote %q, want %q", got, want)
	}
}

func TestLogTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	old, recent := "old\n", strings.Repeat("line\n", tailLines)+"last\n"
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	from := logSize(path)
	if err := os.WriteFile(path, []byte(old+recent), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := logTail(path, from)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("line\n", tailLines-1) + "last"; got != want {
		t.Errorf("logTail = %q, want %q", got, want)
	}
}
