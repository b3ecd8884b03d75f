package mcpconfig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/codeforge-mcp/codeforge/internal/settings"
)

// exact matches an exact version (https://semver.org).
var exact = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// Registry is the address of an npm registry.
type Registry string

// askTime bounds one request to the registry.
const askTime = 15 * time.Second

// ErrNoRegistry means that the registry of packages is unknown.
var ErrNoRegistry = errors.New("PACKAGE_REGISTRY is not set, and npm does not print its registry")

// npmTime bounds the call of npm.
const npmTime = 15 * time.Second

// FromNPM returns the registry of npm's configuration: the user's, not that of a project in the working directory,
// which may be another person's. Its error is one line with the reason.
func FromNPM(ctx context.Context, environ []string) (Registry, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("npm is not installed, so its registry is unknown")
	}
	ctx, cancel := context.WithTimeout(ctx, npmTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "config", "get", "registry") //nolint:gosec // the user's own npm
	cmd.Env, cmd.Dir = environ, homeFolder()
	out, err := cmd.Output()
	if err != nil {
		return "", errors.New("npm does not print its registry")
	}
	address := strings.TrimSpace(string(out))
	s, err := settings.Parse(func(name string) string { return map[string]string{"PACKAGE_REGISTRY": address}[name] })
	if err != nil || s.Registry == nil {
		return "", errors.New("npm's registry is not an https URL without user and port")
	}
	return Registry(address), nil
}

// homeFolder returns the user's folder.
func homeFolder() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	return string(filepath.Separator)
}

// ResolveVersion returns the current exact version for a tag or range of a package. Empty means the latest.
func (r Registry) ResolveVersion(ctx context.Context, pkg, wanted string) (string, error) {
	wanted = cmp.Or(wanted, "latest")
	if r == "" {
		return "", ErrNoRegistry
	}
	// A scoped name has a slash, which the registry expects escaped.
	address := strings.TrimRight(string(r), "/") + "/" + url.PathEscape(pkg) + "/" + url.PathEscape(wanted)
	var about struct {
		Version string `json:"version"`
	}
	err := fetchJSON(ctx, "package registry", address, "application/json", pkg+" "+wanted, &about)
	if err != nil {
		return "", err
	}
	if !exact.MatchString(about.Version) {
		return "", fmt.Errorf("the package registry names no version of %s", pkg)
	}
	return about.Version, nil
}

// maxListing bounds an answer in bytes. Packages of PyPI with many versions have lists of several megabytes.
const maxListing = 64 << 20

// fetchJSON reads the answer of a registry about a package. name is the registry's name in messages.
func fetchJSON(ctx context.Context, name, address, accept, pkg string, to any) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("the %s is not an address", name)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the %s cannot be reached", name)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return fmt.Errorf("the %s has no %s", name, pkg)
	default:
		return fmt.Errorf("the %s answers %d for %s", name, resp.StatusCode, pkg)
	}
	if json.NewDecoder(io.LimitReader(resp.Body, maxListing)).Decode(to) != nil {
		return fmt.Errorf("the %s does not answer with %s for %s", name, accept, pkg)
	}
	return nil
}
