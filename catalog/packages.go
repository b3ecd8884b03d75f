package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/codeforge-mcp/codeforge/catalog/strictjson"
	"github.com/codeforge-mcp/codeforge/internal/jsonread"
	"github.com/codeforge-mcp/codeforge/internal/pypiname"
)

// PackagesFile is the file in apis/ with the packages that code may import.
const PackagesFile = "packages.json"

const (
	packagesExample = `{"packages": ["npm:stripe@18.1.0"]}`
	maxPackages     = 50
	maxPackagesFile = 64 << 10
)

// Packages are the packages that the operator pins for the code of all tenants.
type Packages struct {
	// Pins are the packages in the order of the file. Each is npm:NAME@VERSION or pypi:NAME@VERSION with an exact version,
	// and each NAME of a kind is there once.
	Pins []string
	// Registry is the npm registry of the packages, or "" for PACKAGE_REGISTRY.
	Registry string
	// Index is the package index of the packages of PyPI, and IndexHosts are further hosts of its files.
	Index      string
	IndexHosts []string
}

// SplitPin splits KIND:NAME@VERSION into KIND:NAME and the version, which is empty if the pin lacks one.
func SplitPin(pin string) (name, version string) {
	kind := strings.IndexByte(pin, ':') + 1
	// A scoped name begins with @.
	if at := strings.LastIndexByte(pin, '@'); at > kind {
		return pin[:at], pin[at+1:]
	}
	return pin, ""
}

// PackageName returns the name that identifies a package without its version, KIND:NAME. PyPI ignores extras, the case,
// and the difference between "-", "_" and "." (PEP 503).
func PackageName(pin string) string {
	name, _ := SplitPin(pin)
	if project, isPyPI := strings.CutPrefix(name, "pypi:"); isPyPI {
		return "pypi:" + pypiname.FoldName(project)
	}
	return name
}

// ParsePackages reads the text of PackagesFile, and reports every mistake. After an error the result is empty.
func ParsePackages(data []byte) (Packages, Problems) {
	d := strictjson.Decoder{File: "apis/" + PackagesFile}
	var p Packages
	root := d.ReadRoot(data, packagesExample)
	if root == nil {
		return p, d.Problems
	}
	fields := []string{"packages", "registry", "index", "index_hosts"}
	has, misspelt := d.ReadObject("", root, fields, func(i int, field string, n *jsonread.Node) {
		switch i {
		case 0:
			p.Pins = d.AtMost(field, d.ReadStrings(field, n, `["npm:stripe@18.1.0"]`), maxPackages)
		case 1:
			d.ReadString(field, n, &p.Registry)
		case 2:
			d.ReadString(field, n, &p.Index)
		case 3:
			p.IndexHosts = d.AtMost(field, d.ReadStrings(field, n, `["files.example.com"]`), maxServerList)
		}
	})
	if !has["packages"] && !misspelt["packages"] {
		d.AddError("packages", "missing", "a list, e.g. "+packagesExample)
	}
	if p.Registry != "" && !isRegistry(p.Registry) {
		d.AddError("registry", "not the address of a registry", wantRegistry)
	}
	if p.Index != "" && !isRegistry(p.Index) {
		d.AddError("index", "not the address of a package index", wantRegistry)
	}
	for i, host := range p.IndexHosts {
		if _, err := ParseHost(host); err != nil {
			d.AddError(fmt.Sprintf("index_hosts[%d]", i), "not the name of a host", `a host, e.g. "files.example.com"`)
		}
	}
	seen := map[string]int{}
	for i, pin := range p.Pins {
		field := fmt.Sprintf("packages[%d]", i)
		if !isPin(pin) {
			d.AddError(field, strconv.Quote(strictjson.CutQuote(pin)),
				`npm:NAME@VERSION or pypi:NAME@VERSION, e.g. "npm:stripe@18.1.0"`)
			continue
		}
		if strings.HasPrefix(pin, "pypi:") && p.Index == "" && !misspelt["index"] {
			d.AddError("index", "missing", "the address of a package index, which codeforge package add writes")
			misspelt["index"] = true // one problem is enough
		}
		name := PackageName(pin)
		if first, twice := seen[name]; twice {
			d.AddError(field, fmt.Sprintf("%s again, as in packages[%d]", name, first), "one version of each package")
		}
		seen[name] = i
	}
	if d.Failed {
		return Packages{}, d.Problems
	}
	return p, d.Problems
}

// isPin reports whether a text is a package of npm or PyPI with an exact version. A program of a package, behind a
// slash, is for MCP servers only.
func isPin(s string) bool {
	return len(s) <= maxPackageName && (packageName.MatchString(s) || pypiPackage.MatchString(s)) &&
		strings.Count(s, "/") <= strings.Count(s, ":@")
}

const wantRegistry = "an https:// URL without user, password and port, as npm config get registry prints it"

// isRegistry reports whether a text is the address of a registry, by the rules for PACKAGE_REGISTRY.
func isRegistry(s string) bool {
	u, err := url.Parse(s)
	if err == nil {
		_, err = ParseHost(u.Hostname())
	}
	return err == nil && u.Scheme == "https" && u.User == nil && u.Port() == "" && u.RawQuery == "" && u.Fragment == "" &&
		!strings.ContainsFunc(s, unicode.IsControl)
}

// loadPackages reads PackagesFile. If the file has an error, the previous packages stay.
func (l *loadState) loadPackages() Packages {
	l.budget.api = maxAPIBytes // of this file alone
	data, err := openWithinAPIs(l.root, &l.budget).readFile(PackagesFile, maxPackagesFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Packages{}
	}
	var p Packages
	var problems Problems
	if err != nil {
		problems = Problems{{File: "apis/" + PackagesFile, Found: describeReadError(err),
			Want: fmt.Sprintf("a file of at most %d bytes", maxPackagesFile)}}
	} else {
		p, problems = ParsePackages(data)
	}
	l.problems = append(l.problems, problems...)
	if len(problems.Errors()) > 0 {
		return l.o.Previous.Packages()
	}
	return p
}

// Packages returns the packages that code may import.
func (c *Catalog) Packages() Packages {
	if c == nil {
		return Packages{}
	}
	p := c.packages
	p.Pins, p.IndexHosts = slices.Clone(p.Pins), slices.Clone(p.IndexHosts)
	return p
}
