//go:build unix

package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/ledger"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
)

// TestAudit reads the ledger of a CodeForge that does not run, and compares it with checkpoints from elsewhere.
// Promise: ledger
func TestAudit(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	l, err := ledger.Open(ledger.Config{Dir: filepath.Join(state, "audit"), Version: "v7", Log: slog.New(slog.DiscardHandler)})
	testkit.Must(t, err)
	var heads []string
	for _, run := range []string{"ra", "rb"} {
		testkit.Must(t, l.AppendRecord(ledger.Entry{Exchange: &proxyapi.Exchange{Run: run, Method: "GET", URL: "https://" + run + ".test/"}}))
		testkit.Must(t, l.AppendRecord(ledger.Entry{Run: &ledger.Run{Run: run}}))
		head, err := l.WriteCheckpoint(run)
		testkit.Must(t, err)
		heads = append(heads, head.String())
	}
	testkit.Must(t, l.Close())
	key, err := os.ReadFile(filepath.Join(state, "audit", "key.pub"))
	testkit.Must(t, err)
	testkit.Must(t, os.Chmod(state, 0o700))
	t.Chdir(t.TempDir())
	forged := strings.Replace(heads[0], heads[0][len(heads[0])-8:], "AAAAAAA=", 1)
	testkit.Must(t, os.WriteFile("anchor", []byte(heads[0]+"\nhello\n"+heads[1]+"\n"), 0o600))
	testkit.Must(t, os.WriteFile("forged", []byte(forged+"\n"), 0o600))
	testkit.Must(t, os.WriteFile("empty", []byte("hello\n"), 0o600))
	for _, c := range []struct {
		args string
		code int
		want string // a part of the output; with "!", not a part
	}{
		{"verify", 0, "not compared with a checkpoint from elsewhere"},
		{"verify --anchor anchor", 0, "it fits 2 checkpoints from elsewhere"},
		{"verify --anchor forged", ExitFailed, "of the anchor"},
		{"verify --anchor empty", ExitFailed, "empty has no checkpoint"},
		{"verify --anchor none", ExitFailed, "no such file"},
		{"verify --json --checkpoint " + strings.ReplaceAll(heads[1], " ", "="), 0, `"compared": 1`},
		{"verify --checkpoint 7", ExitUsage, `--checkpoint "7"`},
		{"verify --key " + strings.TrimSpace(string(key)), 0, "ok: "},
		{"verify --key codeforge-x+0+0", ExitFailed, ""},
		{"show", 0, "start   v7"},
		{"show --run ra", 0, "https://ra.test/"},
		{"show --run ra", 0, "!rb.test"},
		{"show --since 2999-01-01", 0, "!ra.test"},
		{"show --since tomorrow", ExitUsage, ""},
		{"export", 0, `"url":"https://rb.test/"`},
		{"export --run rb", 0, "!ra.test"},
		{"export --otlp", 0, "resourceSpans"},
	} {
		text, code := output(t, append([]string{"audit", "--state", state}, strings.Fields(c.args)...)...)
		if want, not := strings.CutPrefix(c.want, "!"); code != c.code || strings.Contains(text, want) == not {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, text)
		}
	}
}

// output is what a command prints.
func output(t *testing.T, args ...string) (text string, code int) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	testkit.Must(t, err)
	defer out.Close()
	stream := terminal.NewStream(out)
	code = Run(t.Context(), &Env{Program: "codeforge", Args: args, Stdout: stream, Stderr: stream})
	data, err := os.ReadFile(out.Name())
	testkit.Must(t, err)
	return string(data), code
}

// TestReference: the reference shows the help of each command, so a flag that goes missing fails here.
func TestReference(t *testing.T) {
	reference, err := os.ReadFile(filepath.Join(testkit.RootDir(t), "docs/reference/commands.md"))
	testkit.Must(t, err)
	for _, c := range allCommands(&Env{})[1:] {
		text, _ := output(t, append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if !strings.Contains(string(reference), "```text\n"+strings.TrimSpace(text)+"\n```\n") {
			t.Errorf("%s: docs/reference/commands.md has another help than this:\n%s", c.CommandPath(), text)
		}
	}
}
