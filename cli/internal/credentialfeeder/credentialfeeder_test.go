//go:build unix

package credentialfeeder_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/cli/internal/credentialfeeder"
	"github.com/codeforge-mcp/codeforge/internal/slot"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
)

// program writes a script and returns its path. The folder is not in /tmp's tree of the test's user alone: its parents
// must be safe too, and they are.
func program(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	testkit.Must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700)) //nolint:gosec // a program
	return path
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	f := credentialfeeder.New([]string{"PATH=relative:" + dir + ":/usr/bin:/bin", "GIVEN=hunter2-given"})
	for name, e := range map[string]struct{ script, want, err string }{
		"text":          {"echo hunter2-text", "hunter2-text", ""},
		"no line feed":  {"printf hunter2-text", "hunter2-text", ""},
		"json":          {`echo '{"value": "hunter2-json", "expires_at": "2040-01-02T03:04:05Z"}'`, "hunter2-json", ""},
		"environment":   {"echo $GIVEN", "hunter2-given", ""},
		"empty":         {"true", "", "empty"},
		"two lines":     {"echo hunter2-text; echo hunter2", "", "line break"},
		"short":         {"echo hunter2", "", "at least"},
		"json, other":   {`echo '{"password": "hunter2-json"}'`, "", "an object that is not"},
		"json, broken":  {`echo '{"value": "hunter2-json'`, "", "an object that is not"},
		"failure":       {"echo hunter2-text; echo hunter2-why >&2; exit 3", "", "exit status 3"},
		"flood":         {"while :; do echo hunter2-hunter2-hunter2-hunter2; done", "", "more than 64 KiB"},
		"a child stays": {"sleep 60 & echo hunter2-text", "", "cannot be run"},
	} {
		program(t, dir, "source", e.script)
		s, err := f.RunProgram(t.Context(), []string{"source", "an argument"})
		if s.Value != e.want || (err == nil) != (e.err == "") || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q, %v", name, s.Value, err)
		}
		if err != nil && e.err != "at least" && !strings.Contains(err.Error(), e.err) {
			t.Errorf("%s: %v; want %q", name, err, e.err)
		}
		if (name == "json") != (s.ExpiresAt != nil) {
			t.Errorf("%s: expires at %v", name, s.ExpiresAt)
		}
	}
	// No shell reads the arguments.
	program(t, dir, "source", `printf '%s' "$1"`)
	if s, err := f.RunProgram(t.Context(), []string{"source", "$(id)-`id`;id|id"}); s.Value != "$(id)-`id`;id|id" || err != nil {
		t.Errorf("%q, %v", s.Value, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := f.RunProgram(ctx, []string{"source", "hunter2-text"}); s.Value != "" || err == nil {
		t.Errorf("after the end: %q, %v", s.Value, err)
	}
}

// TestUnsafePrograms: what somebody else could have put there is not run.
func TestUnsafePrograms(t *testing.T) {
	open := t.TempDir()
	program(t, open, "source", "echo hunter2-text")
	f := credentialfeeder.New([]string{"PATH=" + open + ":.:"})
	run := func() error { _, err := f.RunProgram(t.Context(), []string{"source"}); return err }
	testkit.Must(t, run())
	for name, change := range map[string]func() (undo func()){
		"a program that everybody can write": func() func() {
			testkit.Must(t, os.Chmod(filepath.Join(open, "source"), 0o777)) //nolint:gosec // the mistake
			return func() { testkit.Must(t, os.Chmod(filepath.Join(open, "source"), 0o700)) }
		},
		"a folder that everybody can write": func() func() {
			testkit.Must(t, os.Chmod(open, 0o777)) //nolint:gosec // the mistake
			return func() { testkit.Must(t, os.Chmod(open, 0o700)) }
		},
		"a program that is not executable": func() func() {
			testkit.Must(t, os.Chmod(filepath.Join(open, "source"), 0o600))
			return func() { testkit.Must(t, os.Chmod(filepath.Join(open, "source"), 0o700)) }
		},
	} {
		undo := change()
		if err := run(); err == nil {
			t.Errorf("%s was run", name)
		}
		undo()
	}
	testkit.Must(t, run())
	if os.Getuid() == 0 {
		testkit.Must(t, os.Chown(filepath.Join(open, "source"), slot.BaseUID+3, 0))
		if err := run(); err == nil || !strings.Contains(err.Error(), "sandbox") {
			t.Errorf("a program of a slot's user: %v", err)
		}
		testkit.Must(t, os.Chown(filepath.Join(open, "source"), 31338, 31338))
		if err := run(); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("a program of another user: %v", err)
		}
		testkit.Must(t, os.Chown(filepath.Join(open, "source"), 0, slot.GroupID))
		testkit.Must(t, os.Chmod(filepath.Join(open, "source"), 0o770)) //nolint:gosec // the mistake
		if err := run(); err == nil || !strings.Contains(err.Error(), "sandbox") {
			t.Errorf("a program that the slots' group can write: %v", err)
		}
	}
	t.Chdir(open)
	if _, err := credentialfeeder.New([]string{"PATH=.::relative"}).RunProgram(t.Context(), []string{"source"}); err == nil {
		t.Error("a program in the working directory was run")
	}
}

// proxy notes what it is supplied with.
type proxy struct {
	list     []credentialapi.Credential
	supplied []string
	err      error
}

func (p *proxy) ListCredentials(context.Context) ([]credentialapi.Credential, error) {
	return p.list, nil
}

func (p *proxy) SupplyValue(_ context.Context, name string, s credentialapi.SuppliedValue) error {
	p.supplied = append(p.supplied, name+"="+s.Value)
	return p.err
}

// TestOnce: programs are those of apis/ here, whatever the proxy says, and only what is due is run.
func TestOnce(t *testing.T) {
	dir, marker := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	program(t, dir, "source", `echo "hunter2-$1"`)
	program(t, dir, "PLANTED_TOKEN", "touch "+marker+"; echo hunter2-evil")
	apis := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(apis, "acme"), 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(apis, "acme", "config.json"), []byte(
		`{"description": "x", "domains": ["a.example.com"], "credentials": {
			"FIRST_TOKEN": {"command": ["source", "first"]}, "SECOND_TOKEN": {"command": ["source", "second"]}}}`), 0o600))
	later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Second)
	p := &proxy{list: []credentialapi.Credential{
		{Name: "SECOND_TOKEN", Kind: "command", State: credentialapi.StateReady, DueAt: &later},
		{Name: "FIRST_TOKEN", Kind: "command", State: credentialapi.StateSupply},
		{Name: "PLANTED_TOKEN", Kind: "command", State: credentialapi.StateSupply},
		{Name: "OTHER_TOKEN", Kind: "oauth2", State: credentialapi.StateLogin},
	}}
	f, s := credentialfeeder.New([]string{"PATH=" + dir + ":/usr/bin:/bin"}), credentialfeeder.Source{APIs: apis}
	outcomes, err := f.SupplyOnce(t.Context(), p, s, false)
	if err != nil || len(outcomes) != 2 || outcomes[0].Err != nil || outcomes[1].Err == nil ||
		!slices.Equal(p.supplied, []string{"FIRST_TOKEN=hunter2-first"}) {
		t.Errorf("%v, %+v, supplied %v", err, outcomes, p.supplied)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a program that the proxy named was run")
	}
	p.list[0].DueAt, p.supplied = &before, nil
	p.err = errors.New("refused")
	outcomes, _ = f.SupplyOnce(t.Context(), p, s, false)
	if text := fmt.Sprint(outcomes); len(p.supplied) != 2 || strings.Contains(text, "hunter2") || !strings.Contains(text, "refused") {
		t.Errorf("%s, supplied %v", text, p.supplied)
	}
}
