package strategies_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// Every public function has an example with its output. None of them, nor any
// program in docs, says what the type parameters are: they are inferred. (Noop
// has nothing to infer its own from.)
func TestEveryFunctionHasAnExample(t *testing.T) {
	files := token.NewFileSet()
	var code, tests []*ast.File
	for _, f := range parsed(t, files, ".") {
		if strings.HasSuffix(files.File(f.Pos()).Name(), "_test.go") {
			tests = append(tests, f)
		} else {
			code = append(code, f)
		}
	}
	pkg, err := doc.NewFromFiles(files, code, "strategies")
	if err != nil {
		t.Fatal(err)
	}
	examples := make(map[string]*doc.Example)
	for _, e := range doc.Examples(tests...) {
		examples[e.Name] = e
		for _, name := range instantiated(e.Code) {
			t.Errorf("the example of %s says what the type parameters of %s are", e.Name, name)
		}
	}
	funcs := pkg.Funcs
	for _, typ := range pkg.Types {
		funcs = append(funcs, typ.Funcs...)
	}
	if len(funcs) < 20 {
		t.Fatalf("found %d functions", len(funcs))
	}
	for _, f := range funcs {
		if e := examples[f.Name]; e == nil || e.Output == "" {
			t.Errorf("%s has no example with output", f.Name)
		}
	}
}

func TestProgramsInferTypes(t *testing.T) {
	files := token.NewFileSet()
	for _, dir := range []string{"hello", "quickstart", "migrating", "testing", "examples/insert", "examples/transform",
		"examples/enrich", "examples/route", "examples/aggregate", "examples/dedup", "examples/rebalance"} {
		for _, f := range parsed(t, files, "../docs/"+dir) {
			for _, name := range instantiated(f) {
				t.Errorf("docs/%s says what the type parameters of %s are", dir, name)
			}
		}
	}
}

func parsed(t *testing.T, files *token.FileSet, dir string) (all []*ast.File) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		f, err := parser.ParseFile(files, dir+"/"+e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		t.Fatalf("no Go files in %s", dir)
	}
	return all
}

// instantiated returns the functions of this package that are instantiated
// explicitly.
func instantiated(code ast.Node) (names []string) {
	ast.Inspect(code, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var f ast.Expr
		switch instance := call.Fun.(type) {
		case *ast.IndexExpr:
			f = instance.X
		case *ast.IndexListExpr:
			f = instance.X
		}
		if s, ok := f.(*ast.SelectorExpr); ok && s.Sel.Name != "Noop" {
			if pkg, ok := s.X.(*ast.Ident); ok && pkg.Name == "strategies" {
				names = append(names, s.Sel.Name)
			}
		}
		return true
	})
	return names
}
