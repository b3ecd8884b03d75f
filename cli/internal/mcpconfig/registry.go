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
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	// A scoped name has a slash, which the registry expects escaped.
	address := strings.TrimRight(string(r), "/") + "/" + url.PathEscape(pkg) + "/" + url.PathEscape(wanted)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", errors.New("PACKAGE_REGISTRY is not an address")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", errors.New("the package registry cannot be reached")
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return "", fmt.Errorf("the package registry has no %s %s", pkg, wanted)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the package registry answers %d for %s %s", resp.StatusCode, pkg, wanted)
	}
	var about struct {
		Version string `json:"version"`
	}
	const most = 4 << 20
	err = json.NewDecoder(io.LimitReader(resp.Body, most)).Decode(&about)
	if err != nil || !exact.MatchString(about.Version) {
		return "", fmt.Errorf("the package registry names no version of %s", pkg)
	}
	return about.Version, nil
}
