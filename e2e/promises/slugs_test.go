package promises

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/negative/armed"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

var update = flag.Bool("update", false, "write docs/security/tests.md")

const (
	promisesFile = "docs/security/promises.md"
	testsFile    = "docs/security/tests.md"
)

// promise is one heading of promisesFile.
type promise struct{ slug, title, text string }

// holder is a test that holds a promise. Part names the rows that do, if the test has rows for several promises.
type holder struct{ pkg, name, part string }

func (h holder) String() string {
	text := h.pkg + "." + h.name
	if h.part != "" {
		text += " (" + h.part + ")"
	}
	return text
}

// TestPromises checks that each promise is short, has a test that names it, and a control or a reason why there is none,
// and that each test and each defence names a promise that exists. It compares docs/security/tests.md with the sources;
// -update writes that file.
func TestPromises(t *testing.T) {
	all := readPromises(t)
	known := map[string]bool{}
	for _, p := range all {
		if known[p.slug] {
			t.Errorf("%s has two promises #%s", promisesFile, p.slug)
		}
		known[p.slug] = true
		checkLength(t, p)
	}
	tests := findTests(t)
	for _, slug := range slices.Sorted(maps.Keys(tests)) {
		if !known[slug] {
			t.Errorf("%v: no promise #%s in %s", tests[slug], slug, promisesFile)
		}
	}
	controls := map[string][]string{}
	defences := findDefences(t)
	for _, name := range defences {
		slugs := promisesOf[name]
		if len(slugs) == 0 {
			t.Errorf("the defence %q has no promise in controls_test.go", name)
		}
		for _, slug := range slugs {
			if !known[slug] {
				t.Errorf("the defence %q: no promise #%s in %s", name, slug, promisesFile)
			}
			controls[slug] = append(controls[slug], name)
		}
	}
	for name := range promisesOf {
		if !slices.Contains(defences, name) {
			t.Errorf("controls_test.go names the defence %q, which does not exist", name)
		}
	}
	for _, p := range all {
		if len(tests[p.slug]) == 0 {
			t.Errorf("no test holds #%s", p.slug)
		}
		switch reason := withoutControl[p.slug]; {
		case len(controls[p.slug]) == 0 && reason == "":
			t.Errorf("#%s has neither a control nor a reason why there is none", p.slug)
		case len(controls[p.slug]) > 0 && reason != "":
			t.Errorf("#%s has controls, and a reason why there is none", p.slug)
		}
	}
	for slug := range withoutControl {
		if !known[slug] {
			t.Errorf("controls_test.go: no promise #%s in %s", slug, promisesFile)
		}
	}
	compareTable(t, renderTable(all, tests, controls))
}

// readPromises reads the headings of promisesFile and the text below each.
func readPromises(t *testing.T) []promise {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, promisesFile))
	if err != nil {
		t.Fatal(err)
	}
	var all []promise
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(data), -1)[1:] {
		title, text, _ := strings.Cut(section, "\n")
		if text = strings.TrimSpace(text); text != "" { // a heading of level two groups promises
			all = append(all, promise{anchor(title), title, text})
		}
	}
	if len(all) < 60 {
		t.Fatalf("%s has %d promises: were they moved?", promisesFile, len(all))
	}
	return all
}

// anchor is the anchor that GitHub gives a heading.
func anchor(title string) string {
	kept := strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, strings.ToLower(title))
	return strings.ReplaceAll(kept, " ", "-")
}

// checkLength holds a promise to one bold sentence of at most 30 words and at most 80 words below it.
func checkLength(t *testing.T, p promise) {
	t.Helper()
	m := regexp.MustCompile(`(?s)^\*\*(.+?)\*\*(.*)$`).FindStringSubmatch(p.text)
	if m == nil {
		t.Errorf("#%s does not begin with a bold sentence", p.slug)
		return
	}
	if n := len(strings.Fields(m[1])); n > 30 {
		t.Errorf("#%s: the bold sentence has %d words, want at most 30", p.slug, n)
	}
	if n := len(strings.Fields(m[2])); n > 80 {
		t.Errorf("#%s: %d words below the bold sentence, want at most 80", p.slug, n)
	}
}

// named matches one promise in a comment: a slug, and perhaps the part of the test that holds it.
var named = regexp.MustCompile(`^([a-z0-9-]+)(?: \(([^)]+)\))?$`)

// findTests reads the comments "Promise: SLUG, SLUG (PART)" above the tests of all packages.
func findTests(t *testing.T) map[string][]holder {
	t.Helper()
	out := map[string][]holder{}
	walkGo(t, func(file string) {
		if !strings.HasSuffix(file, "_test.go") {
			return
		}
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ofTest := map[*ast.CommentGroup]string{}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && f.Doc != nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				ofTest[f.Doc] = f.Name.Name
			}
		}
		for _, group := range tree.Comments {
			for _, c := range group.List {
				list, found := strings.CutPrefix(c.Text, "// Promise: ")
				if !found {
					continue
				}
				name := ofTest[group]
				if name == "" {
					t.Errorf("%s: %q stands above no test", file, c.Text)
				}
				for _, entry := range strings.Split(list, ", ") {
					m := named.FindStringSubmatch(entry)
					if m == nil {
						t.Errorf("%s: %s: %q is not a promise's slug", file, name, entry)
						continue
					}
					out[m[1]] = append(out[m[1]], holder{path.Dir(file), name, m[2]})
				}
			}
		}
	})
	return out
}

// findDefences lists the names of all defences in product code, sorted.
func findDefences(t *testing.T) []string {
	t.Helper()
	found, err := armed.Find(root)
	testkit.Must(t, err)
	return found
}

// walkGo calls do with the path below root of every Go file of the project.
func walkGo(t *testing.T, do func(file string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.Type().IsRegular() && path.Ext(rel) == ".go":
			do(filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// renderTable is the content of testsFile.
func renderTable(all []promise, tests map[string][]holder, controls map[string][]string) string {
	var b strings.Builder
	b.WriteString("# Tests of the promises\n\n" +
		"`go test ./promises -update` in `e2e/` writes this page from the comments above the tests. A *control* is a defence that\n" +
		"`e2e/negative` switches off: its attack must then succeed. `make test` runs the tests of all packages but `e2e/kubernetes`,\n" +
		"which `make kubernetes` runs. Tests in Docker need a running engine.\n\n" +
		"| promise | controls | tests |\n|---|---|---|\n")
	for _, p := range all {
		control := withoutControl[p.slug]
		if names := controls[p.slug]; len(names) > 0 {
			control = "`" + strings.Join(names, "`, `") + "`"
		}
		holders := tests[p.slug]
		slices.SortFunc(holders, func(a, b holder) int { return strings.Compare(a.String(), b.String()) })
		var names []string
		for _, h := range holders {
			names = append(names, "`"+h.String()+"`")
		}
		fmt.Fprintf(&b, "| [%s](promises.md#%s) | %s | %s |\n", p.title, p.slug, control, strings.Join(names, ", "))
	}
	return b.String()
}

// compareTable compares testsFile with want, or writes it.
func compareTable(t *testing.T, want string) {
	t.Helper()
	name := filepath.Join(root, testsFile)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil { //nolint:gosec // documentation
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(name)
	if err != nil || string(have) != want {
		t.Errorf("%s differs from the sources (%v): run `go test ./promises -update` in e2e/", testsFile, err)
	}
}
