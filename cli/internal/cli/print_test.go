package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/approvalapi"
)

// TestPrinted: commands name the files that they wrote and what remains to do, and nothing else.
func TestPrinted(t *testing.T) {
	client := clients.Client{Title: "Claude"}
	file := connectOutput{File: "mcp.json", Changed: true}
	beside := file
	beside.Backup = "mcp.json.bak"
	added := []importResult{{Name: "a", Status: "there"}, {Name: "b", Status: "new", File: "b.json", Untyped: []string{"B_KEY"}}}
	const switchedOff = "They are switched off: read them, then codeforge mcp enable NAME and codeforge mcp test NAME.\n"
	for name, row := range map[string]struct {
		print func(*Env)
		want  string
	}{
		"connected already": {func(e *Env) { printConnected(e, client, endpointAccess{}, false, connectOutput{File: "x"}) },
			"Claude is connected already: x\n"},
		"a new file": {func(e *Env) { printConnected(e, client, endpointAccess{token: true}, false, file) }, "Wrote mcp.json.\n"},
		"a changed file": {func(e *Env) { printConnected(e, client, endpointAccess{}, true, beside) },
			"Wrote mcp.json. The old file is in mcp.json.bak.\n"},
		"with a token": {func(e *Env) {
			printConnected(e, clients.Client{Title: "Claude", Note: "Restart it."}, endpointAccess{token: true}, true, file)
		}, "Wrote mcp.json.\nClaude takes the token from " + clients.TokenSetting + " in its own environment, or asks for it.\nRestart it.\n"},
		"no import": {func(e *Env) { printImported(e, "mcp.json", "", added[:1]) }, ""},
		"an import": {func(e *Env) { printImported(e, "mcp.json", "", added) },
			"Wrote b.json.\n  type the credential B_KEY there: codeforge api edit b\n" + switchedOff +
				"mcp.json still has the keys in plain text: --clients takes them out.\n"},
		"an import with a copy": {func(e *Env) { printImported(e, "mcp.json", "copy", added[:1]) },
			"mcp.json now has only CodeForge. The old file, keys included, is copy, which only you " +
				"can read: remove it when everything works.\n"},
	} {
		path := filepath.Join(t.TempDir(), "out")
		out, err := os.Create(path)
		testkit.Must(t, err)
		row.print(&Env{Stdout: terminal.NewStream(out)})
		testkit.Must(t, out.Close())
		text, err := os.ReadFile(path)
		testkit.Must(t, err)
		if string(text) != row.want {
			t.Errorf("%s: %q, want %q", name, text, row.want)
		}
	}
}

// TestLostOutput: a command whose output cannot be written fails.
func TestLostOutput(t *testing.T) {
	readOnly, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer readOnly.Close()
	path := filepath.Join(t.TempDir(), "err")
	log, err := os.Create(path)
	testkit.Must(t, err)
	defer log.Close()
	for _, args := range [][]string{{"version"}, {"man"}, {"help"}} {
		e := &Env{Args: args, Stdout: terminal.NewStream(readOnly), Stderr: terminal.NewStream(log)}
		if code := Run(t.Context(), e); code != ExitFailed {
			t.Errorf("%s: exit %d", args[0], code)
		}
	}
	if text, err := os.ReadFile(path); strings.Count(string(text), "codeforge: write "+os.DevNull) != 3 {
		t.Errorf("%q %v", text, err)
	}
}

// TestQuoteWord: a printed command line has one word for a path with spaces.
func TestQuoteWord(t *testing.T) {
	for word, want := range map[string]string{
		"/a/b-c.d": "/a/b-c.d", "/my files": "'/my files'", "it's": `'it'\''s'`, "": "''", "$HOME": "'$HOME'",
	} {
		if got := quoteWord(word); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

// TestApproveElsewhere: without a terminal, approve wants an ID.
func TestApproveElsewhere(t *testing.T) {
	stdin, err := os.Open(os.DevNull)
	testkit.Must(t, err)
	defer stdin.Close()
	var usage *exitError
	if err := askEach(t.Context(), &Env{Stdin: stdin}, approvalapi.Client{}, false); !errors.As(err, &usage) || usage.code != ExitUsage {
		t.Errorf("got %v", err)
	}
}

// TestImportAbsent: import names a file that it cannot read.
func TestImportAbsent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "absent.json")
	if text, code := output(t, "mcp", "import", path); code != ExitFailed || !strings.Contains(text, path) {
		t.Errorf("exit %d: %s", code, text)
	}
}
