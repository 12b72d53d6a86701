package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var mutate = flag.Bool("mutants", false, "also build and run each mutant, which takes minutes")

const root = "../.."

// Each mutant's edits fit the code as it is; and with -mutants, each is found
// by the simulation within 500 seeds, or by the test that it names.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			changed := make(map[string]string)
			for _, e := range m.edits {
				text, ok := changed[e.file]
				if !ok {
					b, err := os.ReadFile(filepath.Join(root, e.file))
					if err != nil {
						t.Fatal(err)
					}
					text = string(b)
				}
				if n := strings.Count(text, e.from); n != 1 {
					t.Fatalf("%s has %d times what the mutant replaces, want once:\n%s", e.file, n, e.from)
				}
				changed[e.file] = strings.Replace(text, e.from, e.to, 1)
			}
			if *mutate {
				hunt(t, m, changed)
			}
		})
	}
}

// hunt builds the simulation with the mutant and runs it until it fails.
func hunt(t *testing.T, m mutant, changed map[string]string) {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for file, text := range changed {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		mutated := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[original] = mutated
	}
	config, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, config, 0o600); err != nil {
		t.Fatal(err)
	}
	if m.by != "" {
		run := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", overlayFile, "-run", "^"+m.by+"$", root)
		if out, err := run.CombinedOutput(); err == nil {
			t.Fatalf("%s did not find that %s", m.by, m.name)
		} else if !strings.Contains(string(out), "--- FAIL: "+m.by) {
			t.Fatalf("%s did not run: %v\n%.3000s", m.by, err, out)
		}
		t.Logf("found by %s", m.by)
		return
	}
	binary := filepath.Join(dir, "simulation.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlayFile, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build: %v\n%s", err, out)
	}
	run := exec.Command(binary, "-test.run=^TestSimulation$", "-test.failfast", "-test.timeout=10m", "-from=1", "-seeds=500")
	out, err := run.CombinedOutput()
	if err == nil {
		t.Fatalf("500 seeds did not find that %s (%s)", m.name, m.breaks)
	}
	found := regexp.MustCompile(`(?m)^ +(I\d+: .*|Run of .*|panic: .*)$`).FindString(string(out))
	if found == "" {
		found = fmt.Sprintf("%.200s", out)
	}
	seed := regexp.MustCompile(`replay with -seed \d+`).FindString(string(out))
	t.Logf("found: %s (%s)", strings.TrimSpace(found), seed)
	for _, invariant := range strings.Fields(m.breaks) {
		if strings.Contains(string(out), invariant+": ") {
			return
		}
	}
	t.Errorf("the simulation failed, but not with %s:\n%.3000s", m.breaks, out)
}
