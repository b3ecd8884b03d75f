package mcpconfig

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/codeforge-mcp/codeforge/internal/pypiname"
	"github.com/codeforge-mcp/codeforge/internal/settings"
)

var (
	// exactPyPI matches an exact version. The catalog checks its form.
	exactPyPI = regexp.MustCompile(`^[0-9][0-9A-Za-z.!+]*$`)
	// release splits a version into its numbers and the suffix of a preview. Versions with other suffixes do not match.
	release = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)*)((?:a|b|rc)[0-9]+)?$`)
	// requirement matches NAME[EXTRAS], and optionally a version. Options, paths and URLs do not match.
	requirement = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]+\])?)` +
		` *((?:@|[<>=!~]=?=?).*)?$`)
)

// knownConstraints has, by the name of a package, a constraint without which the server fails with today's versions of
// its dependencies. Versions from fixed on work without it. An empty fixed means that no such version is known.
var knownConstraints = map[string]struct{ constraint, fixed string }{
	"mcp-server-fetch": {"mcp<2", "2026.10"}, "mcp-server-time": {"mcp<2", "2026.10"},
	"mcp-server-git": {"mcp<2", "2026.10"}, "mcp-server-sqlite": {"mcp<2", ""}, "mcp-server-sentry": {"mcp<2", ""},
	"office-powerpoint-mcp-server": {"mcp<2", ""},
	"chroma-mcp":                   {"pydantic<2.12", ""}, "semgrep-mcp": {"pydantic<2.12", ""},
}

// Options before the package: those that have a value, those without one, and those that can name a package index.
// Others are refused, because a dropped option could mean another package.
var (
	valueFlags = []string{
		"--from", "--spec", "--with", "-w", "--python", "-p", "--directory", "--project", "--with-editable", "--prerelease",
		"--cache-dir",
	}
	plainFlags = []string{
		"-q", "--quiet", "-v", "--verbose", "--isolated", "-n", "--no-cache", "--refresh", "-U", "--upgrade", "--offline",
		"--native-tls", "--no-config", "--no-project", "--no-progress", "--managed-python", "--",
	}
	indexFlags = []string{
		"--index", "--index-url", "-i", "--default-index", "--extra-index-url", "--find-links", "-f", "--pip-args",
	}
)

// parsePyPI parses the words after uvx, uv tool run, uv run and pipx run. fromWith means that the package is the first
// --with, and that the first word is its program (uv run).
func parsePyPI(words []string, fromWith bool) startCommand {
	var spec string
	var with []string
	for len(words) > 0 && strings.HasPrefix(words[0], "-") {
		flag, value, joined := strings.Cut(words[0], "=")
		words = words[1:]
		switch {
		case slices.Contains(indexFlags, flag):
			return startCommand{refused: refuseOtherIndex("its option "+flag, "PIP_INDEX_URL")}
		case slices.Contains(plainFlags, flag):
		case !slices.Contains(valueFlags, flag):
			return startCommand{refused: "its option " + flag + " is not known here: leave it out"}
		case !joined && len(words) > 0:
			value, words = words[0], words[1:]
		}
		switch flag {
		case "--from", "--spec":
			spec = value
		case "--with", "-w":
			with = append(with, value)
		case "--directory", "--project", "--with-editable":
			return startCommand{refused: "it is a project in a folder of this computer: publish it as a package of PyPI"}
		}
	}
	if fromWith && spec == "" && len(with) > 0 {
		spec, with = with[0], with[1:]
	}
	s := startCommand{pypi: true}
	switch {
	case fromWith && spec == "":
		return startCommand{refused: "it is a script or project in a folder of this computer: make it a package of PyPI"}
	case spec != "" && len(words) > 0:
		s.bin, words = words[0], words[1:]
	case len(words) > 0:
		spec, words = words[0], words[1:]
	}
	if isPython := s.bin == "python" || s.bin == "python3"; isPython {
		return startCommand{refused: "it starts a module: name the package's program instead, as uvx does"}
	}
	m := requirement.FindStringSubmatch(spec)
	if m == nil {
		return startCommand{refused: "it does not name a package of PyPI, as uvx NAME does: packages in folders and " +
			"repositories cannot be installed"}
	}
	s.pkg, s.version, s.args = m[1], strings.TrimSpace(m[2]), words
	for _, name := range with {
		if m := requirement.FindStringSubmatch(strings.TrimSpace(name)); m == nil || m[2] == "" || m[2][0] == '@' {
			return startCommand{refused: "it adds " + name + " to the package (--with): only limits on dependencies are " +
				"possible, as in --with 'mcp<2'"}
		}
		s.constraints = append(s.constraints, strings.ReplaceAll(name, " ", ""))
	}
	s.version = strings.TrimPrefix(strings.TrimPrefix(s.version, "=="), "@")
	if s.version == "latest" {
		s.version = ""
	}
	return s
}

// Index is a package index of PyPI's kind.
type Index struct{ URL string }

// ErrNoIndex means that the package index is unknown.
var ErrNoIndex = errors.New("the package index is unknown: set PIP_INDEX_URL to its https URL, without a password")

// defaultIndex matches the place in uv's help that names its default index.
var defaultIndex = regexp.MustCompile(`default package index \(by default: <(https://[^>]+)>\)`)

// FindIndex returns the address of the package index that pip and uv use: from a variable of theirs, from pip's
// configuration, or the default that the program uv names. The error is ErrNoIndex. It sends no request.
func FindIndex(ctx context.Context, environ []string, uv string) (string, error) {
	var found string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if slices.Contains([]string{"UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"}, name) {
			found = cmp.Or(found, value)
		}
	}
	ask := func(name string, args ...string) string {
		ctx, cancel := context.WithTimeout(ctx, npmTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // the user's own pip, and the pinned uv
		cmd.Env, cmd.Dir = environ, homeFolder()
		out, _ := cmd.Output() // without an answer, the next program is asked
		return strings.TrimSpace(string(out))
	}
	if found == "" {
		found = ask("python3", "-m", "pip", "config", "get", "global.index-url")
	}
	if found == "" && uv != "" {
		if m := defaultIndex.FindStringSubmatch(ask(uv, "--color", "never", "pip", "install", "--help")); m != nil {
			found = m[1]
		}
	}
	s, err := settings.Parse(func(name string) string { return map[string]string{"PACKAGE_REGISTRY": found}[name] })
	if err != nil || s.Registry == nil {
		return "", ErrNoIndex
	}
	return found, nil
}

// ListPackage returns the hosts of a package's files, besides the index's, and its newest version with a wheel (PEP
// 691). A preview is the newest version only if the package has no other.
func (x Index) ListPackage(ctx context.Context, pkg string) (hosts []string, newest string, err error) {
	if x.URL == "" {
		return nil, "", ErrNoIndex
	}
	pkg, _, _ = strings.Cut(pkg, "[")
	base, err := url.Parse(strings.TrimRight(x.URL, "/") + "/" + pypiname.FoldName(pkg) + "/")
	if err != nil {
		return nil, "", errors.New("the package index is not an address")
	}
	var list struct {
		Files []struct {
			Filename, URL string
			Yanked        any
		}
	}
	// PEP 691.
	err = fetchJSON(ctx, "package index", base.String(), "application/vnd.pypi.simple.v1+json", pkg, &list)
	if err != nil {
		return nil, "", err
	}
	for _, f := range list.Files {
		parts := strings.Split(f.Filename, "-")
		at, err := base.Parse(f.URL)
		if err != nil || !strings.HasSuffix(f.Filename, ".whl") || len(parts) < 5 {
			continue
		}
		if host := at.Hostname(); host != base.Hostname() && !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
		if isYanked := f.Yanked != nil && f.Yanked != false; !isYanked && release.MatchString(parts[1]) &&
			compareVersions(parts[1], newest) > 0 {
			newest = parts[1]
		}
	}
	return hosts, newest, nil
}

// compareVersions compares versions that match release by their numbers. Every preview is older than every other
// version. An empty version is the oldest.
func compareVersions(a, b string) int { return slices.Compare(versionNumbers(a), versionNumbers(b)) }

// versionNumbers returns the numbers by which compareVersions orders a version. The first is 0 for a preview, else 1.
func versionNumbers(version string) []int {
	m := release.FindStringSubmatch(version)
	if m == nil {
		return nil
	}
	numbers := []int{1}
	if m[2] != "" {
		numbers[0] = 0
	}
	for part := range strings.FieldsFuncSeq(version, func(r rune) bool { return !unicode.IsDigit(r) }) {
		n, _ := strconv.Atoi(part)
		numbers = append(numbers, n)
	}
	return numbers
}
