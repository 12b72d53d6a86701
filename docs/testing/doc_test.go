package orders

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```\n")

// docs/testing.md shows the consumer, the helpers and the recipes, letter for
// letter and all of them.
func TestDocShowsThisCode(t *testing.T) {
	doc := read(t, "../testing.md")
	var blocks []string
	for _, m := range goBlock.FindAllStringSubmatch(doc, -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) < 12 {
		t.Fatalf("testing.md has %d blocks of Go, want the consumer, the helpers and at least ten recipes", len(blocks))
	}
	for i, want := range []string{
		read(t, "orders.go"),
		afterImports(read(t, "helpers_test.go")),
	} {
		if blocks[i] != want {
			t.Errorf("block %d of testing.md differs from the code:\n%s", i+1, blocks[i])
		}
	}
	rest := afterImports(read(t, "recipe_test.go"))
	for _, block := range blocks[2:] {
		var ok bool
		if rest, ok = strings.CutPrefix(rest, block); !ok {
			t.Fatalf("testing.md does not go on as recipe_test.go does:\n%s", block)
		}
		rest = strings.TrimPrefix(rest, "\n")
	}
	if rest != "" {
		t.Errorf("testing.md lacks what is in recipe_test.go:\n%s", rest)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func afterImports(code string) string {
	_, code, _ = strings.Cut(code, "\n)\n\n")
	return code
}
