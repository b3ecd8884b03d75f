package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestParsePackages: a name is never an option, a path, a range or a URL, and each mistake names its place.
// Promise: first-installed-package
func TestParsePackages(t *testing.T) {
	good := `{"packages": ["npm:stripe@18.1.0", "npm:@slack/web-api@7.9.1-rc.1"], "registry": "https://packages.example.com/npm/"}`
	p, problems := ParsePackages([]byte(good))
	if len(problems) > 0 || !slices.Equal(p.Pins, []string{"npm:stripe@18.1.0", "npm:@slack/web-api@7.9.1-rc.1"}) || p.Registry == "" {
		t.Errorf("%v %v", p, problems)
	}
	good = `{"packages": ["pypi:PyYAML@6.0.2", "pypi:a[b,c]@1.0rc1", "npm:a@1.0.0"], "index": "https://index.example.com/simple", "index_hosts": ["files.example.com"]}`
	p, problems = ParsePackages([]byte(good))
	if len(problems) > 0 || len(p.Pins) != 3 || p.Index != "https://index.example.com/simple" || !slices.Equal(p.IndexHosts, []string{"files.example.com"}) {
		t.Errorf("%v %v", p, problems)
	}
	for pin, want := range map[string]string{
		"npm:stripe": "npm:NAME@VERSION", "npm:stripe@latest": "npm:NAME@VERSION", "npm:stripe@^18.0.0": "npm:NAME@VERSION",
		"npm:stripe@18": "npm:NAME@VERSION", "stripe@18.1.0": "npm:NAME@VERSION", "pypi:httpx": "pypi:NAME@VERSION",
		"pypi:httpx@latest": "pypi:NAME@VERSION", "pypi:httpx@1/httpx": "pypi:NAME@VERSION", "pypi:-r@1": "pypi:NAME@VERSION", "pypi:../x@1": "pypi:NAME@VERSION",
		"pypi:x@1 mcp<2": "pypi:NAME@VERSION", "pypi:x@git+https://example.com/x": "pypi:NAME@VERSION",
		"--allow-scripts": "npm:NAME@VERSION", "npm:--reload@1.0.0 --x": "npm:NAME@VERSION", "npm:../x@1.0.0": "npm:NAME@VERSION",
		"npm:@a/../x@1.0.0": "npm:NAME@VERSION", "npm:stripe@18.1.0/bin": "npm:NAME@VERSION", "npm:@s/x@1.0.0/bin": "npm:NAME@VERSION",
		"npm:x@1.0.0 npm:y@1.0.0": "npm:NAME@VERSION", "npm:x@1.0.0\\n": "npm:NAME@VERSION", "https://example.com/x.js": "npm:NAME@VERSION",
		"npm:" + strings.Repeat("x", 300) + "@1.0.0": "npm:NAME@VERSION",
	} {
		p, problems := ParsePackages([]byte(`{"packages": ["` + pin + `"]}`))
		if p.Pins != nil || len(problems) != 1 || problems[0].Field != "packages[0]" || !strings.Contains(problems[0].Want, want) {
			t.Errorf("%s: %v %v", pin, p, problems)
		}
	}
	for text, want := range map[string]string{
		"":                            "line 1, column 1",
		"[]":                          "a list; want an object",
		"{}":                          "packages: ",
		"{\"packages\": [],\n}":       "line 1, column 16",
		`{"package": []}`:             "did you mean \"packages\"?",
		`{"packages": "npm:x@1.0.0"}`: "a list of strings",
		`{"packages": [1]}`:           "packages[0]",
		`{"packages": ["npm:x@1.0.0", "npm:x@2.0.0"]}`:                                         "one version of each package",
		`{"packages": [], "packages": []}`:                                                     "each key once",
		`{"packages": [], "registry": "http://packages.example.com/"}`:                         "not the address of a registry",
		`{"packages": ["pypi:x@1"]}`:                                                           "index: missing",
		`{"packages": ["pypi:x@1"], "index": "http://example.com/simple"}`:                     "not the address of a package index",
		`{"packages": [], "index_hosts": ["https://example.com"]}`:                             "not the name of a host",
		`{"packages": ["pypi:a_b[c]@1", "pypi:A-B@2"], "index": "https://example.com/simple"}`: "one version of each package",
		`{"packages": [` + strings.Repeat(`"npm:x@1.0.0",`, 50) + `"npm:y@1.0.0"]}`:            "at most 50",
	} {
		if p, problems := ParsePackages([]byte(text)); p.Pins != nil || !strings.Contains(problems.String(), want) {
			t.Errorf("%s: %v %v", text, p, problems)
		}
	}
}

// TestLoadPackages: a file with a mistake leaves the packages in force, and a change is a new version of the catalog.
func TestLoadPackages(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, PackagesFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	empty, problems := Load(dir, Options{})
	if len(problems) > 0 || empty.Packages().Pins != nil {
		t.Fatalf("%v %v", empty.Packages(), problems)
	}
	write(`{"packages": ["npm:x@1.0.0"]}`)
	one, problems := Load(dir, Options{Previous: empty})
	if len(problems) > 0 || !slices.Equal(one.Packages().Pins, []string{"npm:x@1.0.0"}) || one.Version() == empty.Version() {
		t.Fatalf("%v %v", one.Packages(), problems)
	}
	write(`{"packages": ["npm:x"]}`)
	bad, problems := Load(dir, Options{Previous: one})
	if len(problems) != 1 || bad.Version() != one.Version() || !slices.Equal(bad.Packages().Pins, one.Packages().Pins) {
		t.Errorf("%v %v", bad.Packages(), problems)
	}
	if err := os.Remove(filepath.Join(dir, PackagesFile)); err != nil {
		t.Fatal(err)
	}
	if none, _ := Load(dir, Options{Previous: bad}); none.Packages().Pins != nil || none.Version() == one.Version() {
		t.Error(none.Packages())
	}
}
