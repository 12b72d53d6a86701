package simulation

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guarantee is a section of docs/guarantees.md.
type guarantee struct {
	id      string
	tests   []string
	mutants []string
}

// The register of guarantees and the code are in step.
func TestGuarantees(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	guarantees := readGuarantees(string(page))
	if len(guarantees) < 10 {
		t.Fatalf("the page has %d guarantees", len(guarantees))
	}
	tests := testNames(t)
	named := make(map[string][]string) // guarantees, by test and mutant
	for _, g := range guarantees {
		if len(g.tests) == 0 {
			t.Errorf("%s has no test", g.id)
		}
		for _, name := range g.tests {
			named[name] = append(named[name], g.id)
			if !tests[name] {
				t.Errorf("%s names %s, which is no test", g.id, name)
			}
		}
		for _, name := range g.mutants {
			named[name] = append(named[name], g.id)
			if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }) {
				t.Errorf("%s names %q, which is no mutant", g.id, name)
			}
		}
	}
	after := regexp.MustCompile(`^Test(I\d+)[A-Z]`)
	for name := range tests {
		m := after.FindStringSubmatch(name)
		if m != nil && !slices.ContainsFunc(guarantees, func(g guarantee) bool { return g.id == m[1] }) {
			t.Errorf("%s is named after %s, which is no guarantee", name, m[1])
		}
	}
	for _, m := range mutants {
		if len(named[m.name]) == 0 {
			t.Errorf("no guarantee names the mutant %q", m.name)
		}
	}
}

func readGuarantees(page string) (gs []guarantee) {
	for _, section := range strings.Split(page, "\n## ")[1:] {
		text := strings.Join(strings.Fields(section), " ")
		g := guarantee{id: strings.Fields(section)[0]}
		g.tests = regexp.MustCompile(`Test[A-Z]\w+`).FindAllString(text, -1)
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(text, -1) {
			g.mutants = append(g.mutants, m[1])
		}
		gs = append(gs, g)
	}
	return gs
}

// testNames returns the test functions of the module.
func testNames(t *testing.T) map[string]bool {
	names := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(b), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
