package sandboximage

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPins: the pins are full versions.
func TestPins(t *testing.T) {
	for _, v := range []string{DenoVersion(), TypeScriptVersion()} {
		if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(v) {
			t.Errorf("pins %q", v)
		}
	}
}

// TestAskDeno takes the second word of an executable that calls itself deno. It passes no variable of this process.
func TestAskDeno(t *testing.T) {
	t.Setenv("TOKEN", "secret")
	for _, c := range []struct{ script, version, err string }{
		{`echo "deno 2.9.6 (stable, release)"`, "2.9.6", ""},
		{`[ "$1" = --version ] && echo "deno$TOKEN 1"`, "1", ""},
		{`echo node 2.9.6`, "", "not Deno"},
		{`echo deno`, "", "not Deno"},
		{`echo deno 2.9.6; exit 3`, "", "exit status 3"},
	} {
		path := filepath.Join(t.TempDir(), "deno")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+c.script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		got, err := AskDeno(t.Context(), path)
		if got != c.version || (err == nil) != (c.err == "") || err != nil && !strings.HasSuffix(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", c.script, got, err)
		}
	}
}
