package mcpconfig

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestResolveVersion: the registry must name an exact version. Each error is one line with the reason.
func TestResolveVersion(t *testing.T) {
	status, body := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, strings.ReplaceAll(body, "PATH", r.URL.EscapedPath()))
	}))
	defer s.Close()
	for _, c := range []struct {
		r           Registry
		wanted      string
		status      int
		body, want  string
		closeBefore bool
	}{
		{Registry(s.URL + "/"), "", 200, `{"version":"1.2.3"}`, "1.2.3", false},
		{Registry(s.URL), "^1", 404, "", "the package registry has no @a/b ^1", false},
		{Registry(s.URL), "", 500, "", "the package registry answers 500 for @a/b latest", false},
		{Registry(s.URL), "", 200, `{"version":"latest"}`, "the package registry names no version of @a/b", false},
		{Registry(s.URL), "", 200, `{"version":"1.2.3"`, "the package registry does not answer with application/json for @a/b latest", false},
		{Registry(s.URL), "", 200, "[]", "the package registry does not answer with application/json for @a/b latest", false},
		{"", "", 200, "", ErrNoRegistry.Error(), false},
		{"http://%zz", "", 200, "", "the package registry is not an address", false},
		{Registry(s.URL), "", 200, "", "the package registry cannot be reached", true},
	} {
		if status, body = c.status, c.body; c.closeBefore {
			s.Close()
		}
		got, err := c.r.ResolveVersion(t.Context(), "@a/b", c.wanted)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s %d %s: %s, want %s", c.r, c.status, c.body, got, c.want)
		}
	}
}

// TestFromNPM reads the registry of npm's configuration, if it is an https address without user and port.
func TestFromNPM(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if r, err := FromNPM(t.Context(), nil); err == nil || err.Error() != "npm is not installed, so its registry is unknown" {
		t.Errorf("without npm: %s, %v", r, err)
	}
	for script, want := range map[string]string{
		`[ "$*" = "config get registry" ] && echo "$R"`: "https://npm.test/", "exit 1": "npm does not print its registry",
		"echo": "npm's registry is not an https URL without user and port", "echo http://npm.test/": "npm's registry is not an https URL without user and port",
	} {
		if err := os.WriteFile(filepath.Join(dir, "npm"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		r, err := FromNPM(t.Context(), []string{"R=https://npm.test/"})
		got := string(r)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", script, got, want)
		}
	}
}

// TestListPackageFails: each error is one line with the reason.
func TestListPackageFails(t *testing.T) {
	status, body := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	for _, c := range []struct {
		url        string
		status     int
		body, want string
	}{
		{"", 200, "", ErrNoIndex.Error()}, {"http://%zz", 200, "", "the package index is not an address"},
		{s.URL, 404, "", "the package index has no a"}, {s.URL, 503, "", "the package index answers 503 for a"},
		{s.URL, 200, "<html>", "the package index does not answer with application/vnd.pypi.simple.v1+json for a"},
		{s.URL, 200, `{"files":[{"filename":"a-9.0-py3-none-any.whl","url":"http://%zz"},{"filename":"a-8.0-any.whl","url":"x"},{"filename":"a-7.0.tar.gz","url":"x"},` +
			`{"filename":"a-6.0-py3-none-any.whl","url":"x","yanked":"bad"},{"filename":"a-5.0-py3-none-any.whl","url":"https://files.test/x","yanked":false},` +
			`{"filename":"a-4.0-py3-none-any.whl","url":"https://files.test/y"}]}`, "[files.test] 5.0"},
		{"http://127.0.0.1:1", 200, "", "the package index cannot be reached"},
	} {
		status, body = c.status, c.body
		hosts, newest, err := Index{URL: c.url}.ListPackage(t.Context(), "A[extra]")
		got := fmt.Sprint(hosts, " ", newest)
		if err != nil {
			got = err.Error()
		}
		if !strings.EqualFold(got, c.want) {
			t.Errorf("%s %d: %s, want %s", c.url, c.status, got, c.want)
		}
	}
}

// TestWrongFiles: a file that is damaged, or of no client, stays as it is.
func TestWrongFiles(t *testing.T) {
	for name, text := range map[string]string{"a.json": "{", "b.json": "[]", "forge.TOML": "[servers]", "c.json": `{"mcpServers": {}} x`} {
		if out, err := KeepOnlyCodeForge(name, []byte(text), "https://x.test/mcp", nil); err == nil || out != nil {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	many := `{"mcpServers":{"s0":{}`
	for i := 1; i < maxServers; i++ {
		many += fmt.Sprintf(`,"s%d":{}`, i)
	}
	if list, err := ParseConfig("a.json", []byte(many+"}}")); err != nil || len(list) != maxServers {
		t.Errorf("the most servers: %d, %v", len(list), err)
	}
	for text, want := range map[string]string{many + `,"more":{}}}`: "501 servers; want at most 500", "{}": ErrNone.Error(), `{"mcpServers":{}}`: ErrNone.Error()} {
		if _, err := ParseConfig("a.json", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	if _, err := ParseConfig("a.toml", []byte("a = 1\nb = secret\n")); err == nil || err.Error() != "a mistake in line 2; want TOML" {
		t.Errorf("damaged TOML: %v", err)
	}
	if _, err := KeepOnlyCodeForge("a.toml", nil, "", nil); !errors.Is(err, ErrNotClient) {
		t.Error(err)
	}
}
