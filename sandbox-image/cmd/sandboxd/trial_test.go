package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestResolve: what the trial makes of what Deno says.
func TestResolve(t *testing.T) {
	deno := filepath.Join(t.TempDir(), "deno")
	for said, want := range map[string]string{
		"echo resolved": "",
		"echo failed to lookup address information": "(failed to lookup address information)",
		"exit 7":                      "(exit status 7)",
		"echo resolved; echo or not?": "(resolved\nor not?)",
	} {
		testkit.Must(t, os.WriteFile(deno, []byte("#!/bin/sh\n"+said+"\n"), 0o755)) //nolint:gosec // a program
		err := runTrialAs(t.Context(), deno, "1", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", said, err, want)
		}
	}
}
