package cli

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/clients"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/terminal"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/mcp-server/operatorapi"
	"github.com/codeforge-mcp/codeforge/proxy/probe"
	"github.com/codeforge-mcp/codeforge/proxy/proxyapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestExitCode: codeforge run has the script's exit code.
func TestExitCode(t *testing.T) {
	for _, row := range []struct {
		r    mcpclient.Result
		want int
	}{
		{mcpclient.Result{}, 0},
		{mcpclient.Result{Failed: true}, ExitNotRun},
		{mcpclient.Result{Failed: true, Exit: &sandboxapi.Exit{Reason: sandboxapi.Exited, Code: 7}}, 7},
		{mcpclient.Result{Failed: true, Exit: &sandboxapi.Exit{Reason: sandboxapi.Timeout, Code: 137}}, ExitTimeout},
		{mcpclient.Result{Failed: true, Exit: &sandboxapi.Exit{Reason: sandboxapi.OOM}}, ExitFailed},
		{mcpclient.Result{Failed: true, Exit: &sandboxapi.Exit{Reason: sandboxapi.OOM, Code: 137}}, 137},
	} {
		if got := exitCode(row.r); got != row.want {
			t.Errorf("exitCode(%+v) = %d, want %d", row.r, got, row.want)
		}
	}
}

// allCommands are the commands that help shows, the root first.
func allCommands(e *Env) []*cobra.Command {
	all := []*cobra.Command{newRoot(e)}
	for i := 0; i < len(all); i++ {
		for _, c := range all[i].Commands() {
			if c.IsAvailableCommand() {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestEveryCommandDocumentsItself: a summary, exit codes, two examples, and a help of at most 80 columns.
func TestEveryCommandDocumentsItself(t *testing.T) {
	for _, c := range allCommands(&Env{}) {
		name, top := c.CommandPath(), c.HasParent() && !c.Parent().HasParent()
		if c.Short == "" || top && c.GroupID == "" {
			t.Errorf("%s: summary %q, group %q", name, c.Short, c.GroupID)
		}
		if top && c.Name() != "version" && !strings.Contains(c.Long, "Exit codes:") {
			t.Errorf("%s: its exit codes are not documented", name)
		}
		if c.HasParent() && strings.Count(c.Example, "codeforge") < 2 {
			t.Errorf("%s: %q, want two examples", name, c.Example)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no help", name, f.Name)
			}
		})
		var help strings.Builder
		c.SetOut(&help)
		testkit.Must(t, c.Help())
		for line := range strings.Lines(help.String()) {
			if width := utf8.RuneCountInString(line) - 1; width > helpWidth {
				t.Errorf("%s: %d columns: %s", name, width, line)
			}
		}
	}
}

// TestHelpTexts: each section of help.txt names a command, and the texts that list clients or shells list all of them.
func TestHelpTexts(t *testing.T) {
	texts := readHelpTexts()
	for _, c := range allCommands(&Env{}) {
		delete(texts, c.CommandPath())
	}
	for names := range texts {
		t.Errorf("help.txt has a section of %q", names)
	}
	for path, names := range map[string][]string{
		"codeforge connect":    slices.Concat(clients.ListNames(), hostedNames()),
		"codeforge completion": slices.Collect(maps.Keys(completionShells())),
	} {
		for _, name := range names {
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(readHelpTexts()[path]) {
				t.Errorf("the help of %s does not name %s", path, name)
			}
		}
	}
}

// TestLanguages: the help of a command that names one language of code also names the other.
func TestLanguages(t *testing.T) {
	for _, c := range allCommands(&Env{}) {
		text := c.Short + c.Long
		if strings.Contains(text, "TypeScript") != strings.Contains(text, "Python") {
			t.Errorf("%s: its help names one of TypeScript and Python only", c.CommandPath())
		}
	}
}

// TestExamplesParse: every example is a command line that the tree accepts.
func TestExamplesParse(t *testing.T) {
	found := 0
	for _, c := range allCommands(&Env{}) {
		for line := range strings.Lines(strings.ReplaceAll(c.Example, "\\\n", "")) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "codeforge ")
			line, _, _ = strings.Cut(strings.NewReplacer(" <key.txt", "", " >", " |", ")", "").Replace(line), " |")
			e := &Env{Stdout: terminal.NewStream(os.Stdout)}
			root := newRoot(e)
			words := regexp.MustCompile(`'[^']*'|\S+`).FindAllString(line, -1)
			if slices.Contains(words, "codeforge") { // docker exec CONTAINER codeforge
				words = words[slices.Index(words, "codeforge")+1:]
			}
			args, err := commandLine(root, words)
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			if of, rest, err := root.Find(args); err != nil || of == root {
				t.Errorf("%s: calls no command: %v", line, err)
			} else if err := of.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
			} else if err := of.ValidateArgs(of.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			found++
		}
	}
	if found < 100 {
		t.Errorf("%d examples", found)
	}
}

// TestCommandLine: help is a flag of the command, and a long flag needs two dashes.
func TestCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"api --json list":            "api list --json",
		"receipt --json rv4":         "receipt --json rv4",
		"run a.ts --json b":          "run a.ts --json b",
		"run a.ts -- -json --json x": "run a.ts -- -json --json x",
		"help api add":               "api add --help",
		"help":                       "--help",
		"--version":                  "version",
		"logs -f -n 20":              "logs -f -n 20",
		"api list -json":             "api list: -json needs two dashes: --json",
		"run -eval x":                "run: -eval needs two dashes: --eval",
		"run a.ts -timeout=3s":       "run: -timeout=3s needs two dashes: --timeout",
		"runs -help":                 "runs: -help needs two dashes: --help",
		"api tset shop":              `unknown command "api tset"; did you mean test? codeforge api --help lists the commands`,
		"help xyzzy":                 `unknown command "xyzzy"; codeforge --help lists the commands`,
	} {
		args, err := commandLine(newRoot(&Env{}), strings.Fields(line))
		got := strings.Join(args, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

// TestWithArguments: arguments cannot become code, and code without arguments is not touched.
func TestWithArguments(t *testing.T) {
	if got := withArguments("#!/x\ncode", nil); got != "#!/x\ncode" {
		t.Errorf("%q", got)
	}
	got := withArguments("#!/usr/bin/env deno\ncode", []string{`"); evil(); ("`, "\u2028</script>"})
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `["\"); evil(); (\"","\u2028\u003c/script\u003e"]`) || !strings.HasSuffix(got, "; ///usr/bin/env deno\ncode") {
		t.Errorf("%s", got)
	}
}

// TestSince: --since takes a time back, a day or a time.
func TestSince(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "10m": now.Add(-10 * time.Minute), "2h ago": now.Add(-2 * time.Hour), "2026-11-21": now.Add(-36 * time.Hour),
		"2026-11-22 09:30": now.Add(-150 * time.Minute), "2026-11-22T09:30:00Z": now.Add(-150 * time.Minute),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := parseSince("-5m", now); err == nil {
		t.Error("a time in the future passed")
	}
}

// TestConfirm: only a yes on a terminal is a yes.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "yep\n": false} {
		terminalEnd, program := testkit.OpenTerminal(t)
		e := &Env{Stdin: program, Stderr: terminal.NewStream(program)}
		if _, err := io.WriteString(terminalEnd, answer); err != nil {
			t.Fatal(err)
		}
		if err := confirmRemoval(t.Context(), e, "Delete it?"); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
		_, _ = terminalEnd.Close(), program.Close()
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	_, _ = io.WriteString(write, "y\n")
	_ = write.Close()
	if err := confirmRemoval(t.Context(), &Env{Stdin: read, Stderr: terminal.NewStream(write)}, "Delete it?"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("not a terminal: %v", err)
	}
}

func api(restricted, allowed []string, host string, surfaces ...catalog.Surface) *catalog.API {
	h, err := catalog.ParseHostPattern(host)
	if err != nil {
		panic(err)
	}
	return &catalog.API{
		Name: "x", Hosts: []catalog.HostPattern{h}, Methods: catalog.Methods{Restricted: restricted, Allowed: allowed},
		Credentials: []catalog.Credential{{Name: "X_TOKEN", Surfaces: surfaces}},
	}
}

func plain(a *catalog.API) *catalog.API {
	a.AllowHTTP = true
	return a
}

// TestProbe: api test sends a request that changes nothing, with the token where it may be swapped.
func TestProbe(t *testing.T) {
	header := catalog.Surface{Kind: catalog.SurfaceHeader}
	for _, row := range []struct {
		name                       string
		api                        *catalog.API
		method, url, header, value string
	}{
		{"header", api(nil, nil, "a.example", header), "GET", "https://a.example/v1", "Authorization", "Bearer X_TOKEN"},
		{"a port", api(nil, nil, "a.example:8443", header), "GET", "https://a.example:8443/v1", "Authorization", "Bearer X_TOKEN"},
		{"a port, plain", plain(api(nil, nil, "localhost:3000", header)), "GET", "http://localhost:3000/v1", "Authorization", "Bearer X_TOKEN"},
		{"GET restricted", api([]string{"GET"}, nil, "a.example", header), "HEAD", "https://a.example/v1", "Authorization", "Bearer X_TOKEN"},
		{"OPTIONS only", api(nil, []string{"OPTIONS", "POST"}, "a.example"), "OPTIONS", "https://a.example/v1", "", ""},
		{"named header", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceHeader, Field: "X-Api-Key"}), "GET", "https://a.example/v1", "X-Api-Key", "X_TOKEN"},
		{"query", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceQuery, Field: "key"}), "GET", "https://a.example/v1?key=X_TOKEN", "", ""},
		{"body", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceBody}), "GET", "https://a.example/v1", "", ""},
		{"any query", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceQuery}), "GET", "https://a.example/v1", "", ""},
	} {
		p, err := probe.New(hideSecrets(row.api).API, "/v1")
		if err != nil || p.Method != row.method || p.URL != row.url || p.Header != row.header || p.Value != row.value {
			t.Errorf("%s: %+v, %v", row.name, p, err)
		}
	}
	for name, a := range map[string]*catalog.API{
		"no harmless method": api([]string{"GET", "HEAD", "OPTIONS"}, nil, "a.example"),
		"POST only":          api(nil, []string{"POST"}, "a.example"),
		"wildcards only":     api(nil, nil, "*.a.example"),
	} {
		if p, err := probe.New(hideSecrets(a).API, "/"); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestChoosePath: without --path, api test chooses a path that the rules of the API allow.
func TestChoosePath(t *testing.T) {
	for rules, want := range map[string]string{
		``: "/",
		`, "rules": [{"methods": ["GET"], "then": "allow"}]`:                                                       "/",
		`, "rules": [{"methods": ["POST"], "path": "/a", "then": "allow"}, {"path": "/v1/**", "then": "allow"}]`:   "/v1/",
		`, "rules": [{"path": "/v1/me", "then": "refuse"}, {"path": "/v1/*", "then": "allow"}]`:                    "/",
		`, "rules": [{"path": "/v1/me", "then": "approve"}, {"methods": ["GET"], "path": "/v2", "then": "allow"}]`: "/v2",
	} {
		dir := t.TempDir()
		testkit.Must(t, os.Mkdir(filepath.Join(dir, "shop"), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, "shop", "config.json"), []byte(`{"description": "d", "domains": ["shop.test"]`+rules+"}"), 0o600))
		cat, problems := catalog.Load(dir, catalog.Options{})
		if cat.API("shop") == nil {
			t.Fatal(problems)
		}
		if got := choosePath(cat.API("shop")); got != want {
			t.Errorf("%s: %s, want %s", rules, got, want)
		}
	}
}

// A call of an MCP server's tool shows as one, with the sizes of its arguments and result.
func TestExchangeLine(t *testing.T) {
	plain := func(_ terminal.Colour, s string) string { return s }
	x := proxyapi.Exchange{
		Method: "POST", URL: "https://mcp.codeforge.internal/github/create_issue", APIs: []string{"github"},
		Outcome: proxyapi.OutcomeServed, Status: 200, BytesUp: 17, BytesDown: 240, Milliseconds: 12.4,
	}
	want := "served  200 CALL   github.create_issue  17 bytes up, 240 down  12 ms"
	if got := exchangeLine(plain, x); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	x.URL, x.Code, x.HeldMS, x.Milliseconds = "https://api.github.com/repos", "", 18000, 18006
	if got, want := exchangeLine(plain, x), "served  200 POST   https://api.github.com/repos  6 ms after 18000 ms of waiting for approval"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	x.Code, x.HeldMS, x.Milliseconds = "some_code", 0, 12
	if got, want := exchangeLine(plain, x), "served  200 POST   https://api.github.com/repos some_code  12 ms"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestInspect: check warns of what is probably a slip, and only mistakes are errors.
func TestInspect(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		".env":                    "MCP_PROT=8090\nUPSTREAM_CA_FILE=./gone.pem\nSANDBOX_PROGRAMS=./.env\nGITHUB_TOKEN=x\n",
		"apis/foo.json":           "{}",
		"apis/shop/config.jsn":    "{}",
		"apis/stripe/config.json": `{"description": "x", "domains": ["api.stripe.com"], "credentials": {"STRIPE_TOKEN": "${STRIPE_TOKEN}"}}`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := &Env{}
	found, cat := inspectConfig(e, "apis")
	var got []string
	for _, f := range found {
		got = append(got, f.Severity+": "+f.Text)
	}
	want := []string{
		`warning: .env: MCP_PROT: not a setting; did you mean MCP_PORT?`,
		`error: .env: UPSTREAM_CA_FILE: "gone.pem": no such file or folder; want the path of a PEM file`,
		`error: .env: SANDBOX_PROGRAMS: ".env": a file; want the path of a folder`,
		`warning: apis/foo.json: not read; want apis/foo/config.json`,
		`warning: apis/shop/config.jsn: not read; want config.json`,
		`warning: apis/stripe/config.json: credentials.STRIPE_TOKEN: the name of a variable, which CodeForge does not replace here; want the credential itself, or {"file": "..."}; in embedded mode {"env": "NAME"} too`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || len(cat.APIs()) != 1 {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestBrowserArguments: the code that opens the console is in no argument, which every user of the machine may read. It is
// in a page that the user alone may read, which leads to the console.
// Promise: console-sessions
func TestBrowserArguments(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs xdg-open")
	}
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	script := "#!/bin/sh\necho \"$@\" >" + seen + ".new\nmv " + seen + ".new " + seen + "\n"
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	address := operatorapi.ConsoleLogin{Code: "ABCD2345", Port: 8080}.Address()
	if openBrowser(t.Context(), &Env{}, address) || openPage(t.Context(), &Env{}, address) {
		t.Error("a browser without a screen")
	}
	if _, err := os.Stat(filepath.Join(dir, "cache", "codeforge", "console.html")); err == nil {
		t.Error("a page that nothing opens")
	}
	for range 2 { // also over the page of the last time
		if !openPage(t.Context(), &Env{Environ: []string{"DISPLAY=:0"}}, address) {
			t.Fatal("no browser was opened")
		}
		testkit.WaitFor(t, func() bool { _, err := os.Stat(seen); return err == nil })
		text, err := os.ReadFile(seen)
		testkit.Must(t, err)
		testkit.Must(t, os.Remove(seen))
		path := strings.TrimSpace(string(text))
		if strings.Contains(path, "ABCD2345") {
			t.Fatalf("the code is an argument: %s", path)
		}
		page, err := os.ReadFile(path)
		testkit.Must(t, err)
		info, err := os.Stat(path)
		testkit.Must(t, err)
		folder, err := os.Stat(filepath.Dir(path))
		testkit.Must(t, err)
		if info.Mode().Perm() != 0o600 || folder.Mode().Perm() != 0o700 || !strings.Contains(string(page), `content="0; url=`+address+`"`) {
			t.Errorf("%v in %v: %s", info.Mode(), folder.Mode(), page)
		}
	}
}

// TestAllowedMethods: a refused method is not allowed, and no bound means all.
func TestAllowedMethods(t *testing.T) {
	for _, row := range []struct {
		methods catalog.Methods
		want    string
	}{
		{catalog.Methods{}, ""},
		{catalog.Methods{Allowed: []string{"GET", "POST"}}, "GET POST"},
		{catalog.Methods{Allowed: []string{"GET", "POST"}, Restricted: []string{"POST"}}, "GET"},
		{catalog.Methods{Restricted: []string{"DELETE", "PATCH", "POST", "PUT", "QUERY"}}, "GET HEAD OPTIONS"},
	} {
		got := listAllowedMethods(row.methods)
		slices.Sort(got)
		if strings.Join(got, " ") != row.want || (got == nil) != (row.want == "") {
			t.Errorf("%+v: %v", row.methods, got)
		}
	}
}
