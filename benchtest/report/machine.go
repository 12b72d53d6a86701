package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// machine is what the figures depend on, besides Arroyo.
type machine struct {
	CPU      string
	Cores    int
	OS       string
	Go       string
	Versions map[string]string // of modules, by path
}

const (
	franzModule = "github.com/twmb/franz-go"
	kfakeModule = "github.com/twmb/franz-go/pkg/kfake"
)

func thisMachine() machine {
	m := machine{
		CPU:      runtime.GOARCH,
		Cores:    runtime.NumCPU(),
		OS:       runtime.GOOS,
		Go:       strings.TrimPrefix(runtime.Version(), "go"),
		Versions: map[string]string{},
	}
	// Linux has these files; elsewhere what Go knows has to do.
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if model := valueOf(string(text), "model name", ":"); model != "" {
			m.CPU = model
		}
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		if name := valueOf(string(text), "PRETTY_NAME", "="); name != "" {
			m.OS = name
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			m.Versions[d.Path] = d.Version
		}
	}
	return m
}

// valueOf returns the first value of a key in a text of lines.
func valueOf(text, key, separator string) string {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(line, separator)
		if !ok || strings.TrimSpace(k) != key {
			continue
		}
		v = strings.TrimSpace(v)
		if unquoted, err := strconv.Unquote(v); err == nil {
			v = unquoted
		}
		return strings.Join(strings.Fields(v), " ")
	}
	return ""
}
