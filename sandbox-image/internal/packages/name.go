package packages

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/codeforge-mcp/codeforge/internal/convert"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// namePattern matches a package name as npm defines it, with an exact version as semver.org defines it. pypiPin matches
// a name of PyPI with extras, and an exact version as PEP 440 defines it. pypiPattern matches a set, or a pypiPin and
// constraints. A match is never an option or a path.
var (
	pypiPin = `pypi:[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?` +
		`@[0-9][0-9A-Za-z.!+-]*`
	pypiPattern = regexp.MustCompile(`^` + pypiPin +
		`(( [A-Za-z0-9][A-Za-z0-9._-]*[<>=!~][<>=!~0-9A-Za-z.*+,-]*)*|( ` + pypiPin + `)*)$`)
	namePattern = regexp.MustCompile(`^npm:(@[A-Za-z0-9~_-][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_-][A-Za-z0-9._~-]*` +
		`@[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	maxName        = 300
	maxConstrained = 16 << 10 // bytes, for a package of PyPI with its constraints
)

// CheckName returns an error if a text does not name a package and its exact version.
func CheckName(pkg string) error {
	if !sandboxapi.IsPyPI(pkg) {
		return checkNPM(pkg)
	}
	return checkPyPI(pkg)
}

func checkPyPI(pkg string) error {
	if len(pkg) > maxConstrained || !pypiPattern.MatchString(pkg) {
		return fmt.Errorf("package %.80q: want pypi:NAME@VERSION with an exact version", pkg)
	}
	return nil
}

func checkNPM(pkg string) error {
	if len(pkg) > maxName || !namePattern.MatchString(pkg) {
		return fmt.Errorf("package %.80q: want npm:NAME@VERSION with an exact version", pkg)
	}
	return nil
}

// maxSet is the largest number of packages in a set.
const maxSet = 50

// CheckSet returns an error if a text is not a sandboxapi.PackageSet of some packages of one kind.
func CheckSet(set string) error {
	list := strings.Split(set, " ")
	if len(list) > maxSet {
		return fmt.Errorf("%d packages: want at most %d", len(list), maxSet)
	}
	check := checkNPM
	if sandboxapi.IsPyPI(set) {
		check = checkPyPI
	}
	return errors.Join(convert.Each(list, check)...)
}

// CheckRegistry returns an error if a text is not the https address of a registry.
func CheckRegistry(registry string) error {
	u, err := url.Parse(registry)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
		return errors.New("registry: want an https URL")
	}
	return nil
}
