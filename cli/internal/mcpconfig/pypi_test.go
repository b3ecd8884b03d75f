package mcpconfig

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// newIndex returns an index with these files of one package. A file that begins with - was yanked.
func newIndex(t *testing.T, pkg string, files ...string) Index {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/simple/"+pkg+"/" || r.Header.Get("Accept") != "application/vnd.pypi.simple.v1+json" {
			http.NotFound(w, r)
			return
		}
		type file struct {
			Filename string `json:"filename"`
			URL      string `json:"url"`
			Yanked   any    `json:"yanked"`
		}
		var list []file
		for _, name := range files {
			f := file{Filename: strings.TrimPrefix(name, "-"), URL: "https://files.example.com/" + name, Yanked: false}
			if name[0] == '-' {
				f.Yanked = "broken"
			}
			list = append(list, f)
		}
		list = append(list, file{Filename: strings.ReplaceAll(pkg, "-", "_") + "-0.0.1-py3-none-any.whl", URL: "../../files/x.whl"})
		_ = json.NewEncoder(w).Encode(map[string]any{"files": list})
	}))
	t.Cleanup(server.Close)
	return Index{URL: server.URL + "/simple"}
}

// TestListPackage: the newest version is that of a wheel that is not yanked, and a preview only if there is no other.
func TestListPackage(t *testing.T) {
	const any = "-py3-none-any.whl"
	for want, files := range map[string][]string{
		"1.10":   {"a_b-1.9" + any, "a_b-1.10" + any, "a_b-2.0rc1" + any, "-a_b-1.11" + any, "a_b-3.0.tar.gz"},
		"0.0.1":  {"a_b-1.0a4" + any, "a_b-0.0.1.dev3" + any},
		"2025.1": {"a_b-2025.1-cp311-cp311-manylinux_2_17_x86_64.whl"},
	} {
		hosts, newest, err := newIndex(t, "a-b", files...).ListPackage(t.Context(), "A_b[extra]")
		if newest != want || !slices.Equal(hosts, []string{"files.example.com"}) || err != nil {
			t.Errorf("%q: %q %q %v, want %s", files, newest, hosts, err, want)
		}
	}
	if _, _, err := newIndex(t, "a-b").ListPackage(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "has no other") {
		t.Error(err)
	}
}

func TestCompareVersions(t *testing.T) {
	order := []string{"", "0.0.1a4", "0.0.1a10", "9.0rc1", "0.9", "1.2", "1.10", "2025.4.25", "2026.10"}
	for i, a := range order {
		for j, b := range order {
			if got := compareVersions(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
}

// TestPinPyPI: a draft has an exact version, the index with its hosts, and a constraint if the server is known to need it.
func TestPinPyPI(t *testing.T) {
	never := func(string) bool { return false }
	index := newIndex(t, "mcp-server-time", "mcp_server_time-2026.7.10-py3-none-any.whl", "mcp_server_time-2026.10.19-py3-none-any.whl")
	for command, want := range map[string]string{
		"uvx mcp-server-time --x":                                             `"package":"pypi:mcp-server-time@2026.10.19","registry":"URL","registry_hosts":["files.example.com"],"args":["--x"]`,
		"uvx mcp-server-time@2026.7.10":                                       `"package":"pypi:mcp-server-time@2026.7.10","registry":"URL","registry_hosts":["files.example.com"],"constraints":["mcp<2"]`,
		"uvx mcp-server-time[x]@2026.7.10":                                    `"package":"pypi:mcp-server-time[x]@2026.7.10","registry":"URL","registry_hosts":["files.example.com"],"constraints":["mcp<2"]`,
		"uvx --with mcp<3 mcp-server-time":                                    `"package":"pypi:mcp-server-time@2026.10.19","registry":"URL","registry_hosts":["files.example.com"],"constraints":["mcp<3"]`,
		"uvx --from mcp-server-time==1 tool":                                  `"package":"pypi:mcp-server-time@1/tool","registry":"URL","registry_hosts":["files.example.com"],"constraints":["mcp<2"]`,
		"uvx mcp-server-time>=1":                                              "refused",
		"uvx mcp-server-none":                                                 "refused",
		"uvx mcp-server-time@https://files.acme.example/a-1-py3-none-any.whl": "refused",
		"uvx --from mcp-server-time@https://files.acme.example/a-1-py3-none-any.whl tool": "refused",
		"npx -c mcp-server-time":         "refused",
		"npx --call=x --package=x@1.0.0": "refused",
		// A package of a named index may be another person's in the user's own.
		"uvx --index-url https://index.acme.example/simple mcp-server-time":          "refused",
		"uvx --default-index=https://index.acme.example/simple mcp-server-time":      "refused",
		"uvx -i https://index.acme.example/simple mcp-server-time":                   "refused",
		"uv tool run --index acme=https://index.acme.example mcp-server-time":        "refused",
		"uvx --extra-index-url https://index.acme.example/simple mcp-server-time":    "refused",
		"pipx run --pip-args=--index-url=https://index.acme.example mcp-server-time": "refused",
		"pipx run --pip-args=-ihttps://index.acme.example mcp-server-time":           "refused",
		"uvx --find-links=https://files.acme.example mcp-server-time":                "refused",
		"uvx --not-known=https://files.acme.example mcp-server-time":                 "refused",
		"env npm_config_registry=https://registry.acme.example npx mcp-server-time":  "refused",
		"env UV_FIND_LINKS=https://files.acme.example uvx mcp-server-time":           "refused",
		"env UV_DEFAULT_INDEX=https://index.acme.example/simple uvx mcp-server-time": "refused",
	} {
		d := (&Drafter{TakenAPI: never, TakenToken: never, Index: func() Index { return index }}).DraftServer(
			t.Context(), Server{Name: "x", Command: strings.Fields(command)})
		line, err := json.Marshal(d.Entry.Server)
		testkit.Must(t, err)
		got := strings.NewReplacer(index.URL, "URL", `\u003c`, "<").Replace(strings.Trim(string(line), "{}"))
		if d.Refused != "" {
			got = "refused"
		}
		if got != want {
			t.Errorf("%s:\n%s (%s)\nwant\n%s", command, got, d.Refused, want)
		}
	}
}

// TestFindIndex: the user's variables come first, then pip's configuration, then uv's default.
func TestFindIndex(t *testing.T) {
	bin := t.TempDir()
	script := func(name, text string) {
		testkit.Must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700)) //nolint:gosec // a program
	}
	t.Setenv("PATH", bin)
	uv := filepath.Join(bin, "uv")
	if got, err := FindIndex(t.Context(), nil, ""); err != ErrNoIndex { //nolint:errorlint // itself
		t.Errorf("%q %v", got, err)
	}
	script("uv", `echo "  The default package index (by default: <https://default.example.com/simple>) [env: X]"`)
	script("python3", "exit 1")
	if got, err := FindIndex(t.Context(), nil, uv); got != "https://default.example.com/simple" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	script("python3", `[ "$*" = "-m pip config get global.index-url" ] && echo https://pip.example.com/simple`)
	if got, err := FindIndex(t.Context(), nil, uv); got != "https://pip.example.com/simple" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if got, err := FindIndex(t.Context(), []string{"A=b", "PIP_INDEX_URL=https://variable.example.com/"}, uv); got != "https://variable.example.com/" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if got, err := FindIndex(t.Context(), []string{"PIP_INDEX_URL=https://user:hunter2@variable.example.com/"}, uv); err == nil || got != "" {
		t.Errorf("%q", got)
	}
}

// TestDefaultIndex: the pinned uv names its default index where FindIndex looks for it.
func TestDefaultIndex(t *testing.T) {
	uv := testkit.UVPath(t)
	t.Setenv("PATH", t.TempDir())
	if got, err := FindIndex(t.Context(), nil, uv); !strings.HasPrefix(got, "https://") || err != nil {
		t.Errorf("%q %v", got, err)
	}
}
