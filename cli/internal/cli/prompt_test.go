package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/term"

	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// typist answers questions on a terminal.
type typist struct {
	t      *testing.T
	master *os.File
	e      *Env
	shown  chan string
	screen string
	ctx    context.Context //nolint:containedctx // what Ctrl-C ends
	ctrlC  context.CancelFunc
	fd     int
	code   chan int
}

// newTypist starts a command line on a terminal.
func newTypist(t *testing.T, args ...string) *typist {
	t.Helper()
	master, slave := testkit.OpenTerminal(t)
	t.Cleanup(func() { _ = master.Close() }) // not slave: after Ctrl-C it is still read from, until master is closed
	w := &typist{t: t, master: master, code: make(chan int, 1), fd: int(slave.Fd())}
	w.ctx, w.ctrlC = context.WithCancel(t.Context())
	w.e = &Env{Args: args, Stdin: slave, Stdout: terminal.NewStream(slave), Stderr: terminal.NewStream(slave)}
	w.shown = make(chan string, 1000)
	go func() {
		defer close(w.shown)
		for buffer := make([]byte, 4096); ; {
			n, err := master.Read(buffer)
			if err != nil {
				return
			}
			w.shown <- string(buffer[:n])
		}
	}()
	go func() { w.code <- Run(w.ctx, w.e) }()
	return w
}

// sees waits for a text on the screen.
func (w *typist) sees(text string) *typist {
	w.t.Helper()
	w.t.Logf("waiting for %q", text)
	for !strings.Contains(w.screen, text) {
		select {
		case shown, ok := <-w.shown:
			if w.screen += shown; !ok {
				w.t.Fatalf("the terminal is closed, and shows\n%s", w.screen)
			}
		case <-time.After(testkit.Patience):
			w.t.Fatalf("the terminal shows\n%s", w.screen)
		}
	}
	w.screen = w.screen[strings.Index(w.screen, text)+len(text):]
	return w
}

func (w *typist) types(line string) *typist {
	w.t.Helper()
	_, err := io.WriteString(w.master, line+"\n")
	testkit.Must(w.t, err)
	return w
}

// TestPlainHost: api add drops the scheme of a host, so it says which fields http needs.
func TestPlainHost(t *testing.T) {
	newTypist(t, "api", "add", "shop", "--apis", t.TempDir(), "--domain", "http://localhost:3000", "--token", "none",
		"--description", "x", "--read-only").sees(`"allow_http": true`).sees(`"allow_private": ["127.0.0.1/32"]`)
}

// TestCtrlC: at every question Ctrl-C ends the command at once. Nothing is written, and the terminal shows again what is
// typed.
func TestCtrlC(t *testing.T) {
	questions := []struct{ question, answer string }{
		{"e.g. api.stripe.com: ", "https://api.shop.test/v1"}, {"[shop]: ", ""}, {"or none: ", ""}, {"[header]: ", ""},
		{"[none]: ", ""}, {"(not shown): ", ""},
	}
	for last := range questions {
		dir := t.TempDir()
		w := newTypist(t, "api", "add", "shop", "--apis", dir)
		before, err := term.GetState(w.fd)
		testkit.Must(t, err)
		for i, q := range questions[:last+1] {
			w.sees(q.question)
			if i < last {
				w.types(q.answer)
			}
		}
		w.ctrlC()
		if code := <-w.code; code != ExitInterrupted {
			t.Errorf("question %d: exit %d", last, code)
		}
		if after, err := term.GetState(w.fd); err != nil || *after != *before {
			t.Errorf("question %d: the terminal is another than before: %v", last, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("question %d: left: %v", last, left)
		}
	}
	dir := t.TempDir()
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "shop"), 0o755))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "shop", "config.json"), []byte("{}"), 0o600))
	w := newTypist(t, "api", "rm", "shop", "--apis", dir).sees("[y/N] ")
	w.ctrlC()
	if code := <-w.code; code != ExitInterrupted {
		t.Errorf("api rm: exit %d", code)
	}
	if _, err := os.Stat(filepath.Join(dir, "shop", "config.json")); err != nil {
		t.Error(err)
	}
}

// TestContainer: in mcp-server's container, which has neither apis/ nor the proxy's socket, what needs them says where to do
// that, and says nothing of what may be in them.
func TestContainer(t *testing.T) {
	t.Chdir(t.TempDir()) // commands look for CodeForge's folder from here upwards
	rows := map[string]string{
		"audit verify": "the proxy cannot be reached from", "approve h1": "the proxy cannot be reached from",
		"down": "is stopped from the host", "up": "is stopped from the host",
	}
	for _, args := range []string{"add shop", "update shop", "edit shop", "enable shop", "disable shop", "rm shop", "explain shop GET /"} {
		rows["api "+args] = "run codeforge api " + args + " there (make cli"
	}
	for _, args := range []string{"list", "add npm:zod@4.6.7", "rm npm:zod"} {
		rows["package "+args] = "run codeforge package " + args + " there (make cli"
	}
	rows["mcp list"] = "run codeforge mcp list there (make cli"
	for _, verb := range []string{"tools", "test", "approve", "restart", "disable", "rm", "login", "add", "import"} {
		rows["mcp "+verb+" shop"] = "run codeforge mcp " + verb + " shop there (make cli"
	}
	for line, want := range rows {
		read, write, err := os.Pipe()
		testkit.Must(t, err)
		out := terminal.NewStream(write)
		e := &Env{Args: strings.Fields(line), Environ: []string{"CODEFORGE_CONTAINER=1"}, Stdout: out, Stderr: out}
		code := Run(t.Context(), e)
		_ = write.Close()
		said, _ := io.ReadAll(read)
		_ = read.Close()
		if code != ExitFailed || !strings.Contains(string(said), want) {
			t.Errorf("%s: exit %d: %s", line, code, said)
		}
	}
}

// TestAnswers: an answer is checked at once, and said about without the file that is not written yet; a name before any
// question.
func TestAnswers(t *testing.T) {
	dir := t.TempDir()
	w := newTypist(t, "api", "add", "shop", "--apis", dir)
	w.sees("e.g. api.stripe.com: ").types("https://api.shop.test:8443/v1?x=1, api.shop.test").sees("hosts: api.shop.test:8443, api.shop.test")
	w.sees("[shop]: ").types("A shop").sees("or none: ").types("shop token").sees("found no token name").sees("or none: ").types("")
	w.sees("[header]: ").types("headr").sees(`"headr": not a surface`).sees("[header]: ").types("query:key")
	w.sees("[none]: ").types("DELTE").sees("found \"DELTE\", which is not a known method; did you mean \"DELETE\"? Try again")
	w.sees("[none]: ").types("DELETE").sees("(not shown): ").types("short").sees("at least 8").sees("(not shown): ").types("sk_test_12345678")
	w.sees("Wrote ")
	if code := <-w.code; code != 0 {
		t.Errorf("exit %d", code)
	}
	text, err := os.ReadFile(filepath.Join(dir, "shop", "config.json"))
	testkit.Must(t, err)
	for _, want := range []string{`"A shop"`, `"api.shop.test:8443"`, `"sk_test_12345678"`, `"query:key"`, `"DELETE"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("config.json has no %s:\n%s", want, text)
		}
	}
	// Flags are checked before the first question.
	for flag, bad := range map[string]string{"--token": "KEY", "--in": "headr", "--domain": "a..b"} {
		w := newTypist(t, "api", "add", "other", "--apis", dir, flag, bad).sees("codeforge: " + flag + ": ")
		if code := <-w.code; code != ExitUsage {
			t.Errorf("%s %s: exit %d", flag, bad, code)
		}
	}
	newTypist(t, "api", "add", "open", "--apis", dir, "--token", "none", "--domain", "https://open.shop.test/x", "--description", "x").
		sees("Methods to refuse").types("").sees("Wrote ")
	for _, row := range []struct {
		name, want string
		code       int
	}{
		{"Stripe", "want stripe", ExitFailed},
		{"my shop", "want my-shop", ExitFailed},
		{"http://es.lan:9200/_search", "api add NAME --domain es.lan:9200", ExitUsage},
		{"api.stripe.com", "api add NAME --domain api.stripe.com", ExitUsage},
	} {
		w := newTypist(t, "api", "add", row.name, "--apis", dir).sees(row.want)
		if code := <-w.code; code != row.code {
			t.Errorf("%s: exit %d", row.name, code)
		}
	}
}

// TestAddWithoutToken: without a terminal and --token, standard input is not read, and a note says that no key was stored.
func TestAddWithoutToken(t *testing.T) {
	for flag, want := range map[string]bool{"": true, "none": false} {
		args := []string{"api", "add", "shop", "--apis", t.TempDir(), "--domain", "api.shop.test"}
		if flag != "" {
			args = append(args, "--token", flag)
		}
		path := filepath.Join(t.TempDir(), "stderr")
		stderr, err := os.Create(path) //nolint:gosec // the test's
		testkit.Must(t, err)
		e := &Env{Args: args, Stdin: stderr, Stdout: terminal.NewStream(stderr), Stderr: terminal.NewStream(stderr)}
		code := Run(t.Context(), e)
		testkit.Must(t, stderr.Close())
		text, err := os.ReadFile(path) //nolint:gosec // the test's
		testkit.Must(t, err)
		if code != 0 || strings.Contains(string(text), "no credential") != want {
			t.Errorf("--token %q ended with %d: %s", flag, code, text)
		}
	}
}
