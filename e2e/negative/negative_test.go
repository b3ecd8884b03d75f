// Package negative shows that each defence is what stops its attacks. It switches each one off, in binaries built with
// package armed's overlay, and then an attack of the suite must succeed, as judged by the suite itself.
package negative

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/e2e/attack"
	"github.com/codeforge-mcp/codeforge/e2e/negative/armed"
	"github.com/codeforge-mcp/codeforge/e2e/negative/armed/disarm"
	"github.com/codeforge-mcp/codeforge/e2e/turn"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv("CODEFORGE_E2E_STAGE") == "" {
		if err := writeOverlay(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(world.Main(m))
}

func writeOverlay() error {
	root, err := world.Root()
	if err != nil {
		return err
	}
	path, err := armed.Write(root, filepath.Join(root, "bin", "_overlay"))
	if err != nil {
		return err
	}
	return os.Setenv(world.OverlayVar, path)
}

// switchOff switches defences off in all programs that start until the test ends.
func switchOff(t *testing.T, defences ...string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(disarm.File, []byte(strings.Join(defences, ",")), 0o644))
	t.Cleanup(func() { _ = os.Remove(disarm.File) })
}

// control is a defence and the attacks that succeed without it.
type control struct {
	defence string
	attacks []string
	// more are attacks that succeed too, but only show again that the defence stops them. They take long, so they are
	// mounted only if testkit.IsThorough.
	more []string
	// patience bounds an attack that does not end by itself; zero means a minute.
	patience time.Duration
}

// group is a world in which several defences are off at once. None of them stops an attack of another.
type group struct {
	config world.Config
	// tenants means that there are those of attack.TokensFile.
	tenants bool
	// memory means that its attacks, none of which is Weighed, take so much of the machine's memory that other packages
	// must not measure Weighed attacks meanwhile.
	memory   bool
	controls []control
}

// groups are one world each. attack.TestDisarmed covers the defences that configuration can switch off (default deny,
// methods, plain HTTP, redaction).
func groups() []group {
	return []group{
		{controls: []control{
			{defence: "host-agreement", attacks: []string{"second request on the connection names another API", ":authority of another API over HTTP/2", "SNI of httpbin.test, Host of ports.test:3000, on a connection to 3000"}},
			{defence: "host-port", attacks: []string{"DEVPORT_TOKEN at https://ports.test", "DEVPORT_TOKEN at https://ports.test:3001", "a port of ports.test at a host without one"}},
			{defence: "override", attacks: []string{"override header X-HTTP-Method-Override", "_method in the query", "overrides in the query", "overrides in a header"}},
			{defence: "body-override", attacks: []string{"_method in a form to a host where DELETE alone is restricted", "_method in a chunked form", "overrides in JSON", "overrides in a form with parts", "overrides in gzip", "overrides in gzip that a second Content-Encoding names"}},
			{defence: "operations", attacks: []string{"no operation of the document: a method that the path does not have", "no operation of the document: a path that is none", "no operation of the document: escaped twice"}},
			{defence: "rules", attacks: []string{"no rule permits it: a path in another case", "a refund that no rule permits: above the bound", "a refund that no rule permits: the amount twice", "no rule permits a mutation: beside a query"}},
			{defence: "websocket-writes", attacks: []string{"a WebSocket if POST is restricted", "a WebSocket if a rule permits GET"}},
			{defence: "moved-path", attacks: []string{"no rule permits it: a path in X-Original-URL", "no rule permits it: a path in X-Amz-Copy-Source", "no operation of the document: a path in X-Original-URL"}},
			{defence: "dialguard", attacks: []string{"name that resolves to 127.0.0.1"}},
			{defence: "upstream-tls", attacks: []string{"upstream with a expired certificate", "upstream with a certificate for another name"}},
			{defence: "surface", attacks: []string{"name in chat text of a query", "name of a header credential in the path"}},
			{defence: "one-reading", attacks: []string{
				"JSON: a comment around the declared key", "JSON: a key without quotes", "JSON: the declared key twice", "JSON: the declared key again, after 600 KiB",
				"JSON without a type, which is a form to some", "form that is JSON to those who look at no type", "form: the declared field twice",
				"the declared parameter twice", "Authorization: single quotes", "Authorization twice", "cookies: quotes around the declared one", "path: dot segments, escaped twice",
			}},
			{defence: "range", attacks: []string{"slices by Range", "slices by Request-Range"}},
			{defence: "last-body", attacks: []string{"DELETE with a body that a server takes for the next request", "the credential in the body of a request inside a DELETE"}},
			{defence: "run-connections", attacks: []string{"the answer to another run's request"}},
			{defence: "mcp-host", attacks: []string{"foreign Host", "Host of the machine's address", "console: under a foreign name"}},
			{defence: "mcp-origin", attacks: []string{"foreign Origin", "Origin null", "console: in a frame of another page"}},
			{defence: "mcp-owner", attacks: []string{"another user of the machine", "console: another user of the machine"}},
			{defence: "console-bearer", attacks: []string{"console: its API without a session", "console: its API with a session of somebody"}},
			{defence: "console-code", attacks: []string{"console: a code used twice"}},
			{defence: "console-end", attacks: []string{"console: a session that somebody has ended"}},
			{defence: "console-policy", attacks: []string{"console: a page without a policy"}},
			{defence: "terminal", attacks: []string{"on a terminal: what a run prints", "on a terminal: a skill's source"}},
			{defence: "message-bounds", attacks: []string{"a client with a name of 8 MiB", "an id of 8 MiB"}},
			{defence: "tool-bounds", attacks: []string{"execute_code with one API named 100,000 times"}},
			{defence: "uid", attacks: []string{"another run's private file in /tmp", "Python: another run's private file in /tmp"}},
			{defence: "last-scrub", attacks: []string{"a value that got out, in a path", "an upstream's words in the log"}},
		}},
		{config: world.Config{Env: map[string]string{"MCP_AUTH_TOKEN": attack.Token}, Change: attack.WithLimits}, controls: []control{
			{defence: "canaries", attacks: []string{"a canary in a request: base64 in a body", "a canary in a request: a query"}},
			{defence: "limits", attacks: []string{"what is more than a limit: in one request", "what is more than a limit: no amount",
				"a limit spent twice: 40 writes at once", "a limit spent twice: payments at once", "a limit spent twice: a write that is announced and aborted, then others",
				"a limit spent twice: a payment that is announced and aborted, then others", "a limit spent twice: writes announced at once, then sent at once",
				"a limit spent twice: payments announced at once, then sent at once", "a limit spent twice: writes whose bodies break off, then others",
				"a limit spent twice: writes whose answers nobody waits for", "a limit spent twice: by runs at once"}},
			{defence: "approval", attacks: []string{"a request that waits for a person: as it is", "a request that waits for a person: a body that cannot be shown"}},
			{defence: "strict", attacks: []string{"smuggling: bare line feeds", "smuggling: folded header", "smuggling: Content-Length and chunked"}},
			{defence: "sink-headers", attacks: []string{"name in the header Cookie", "name in the header Referer", "name in the header User_Agent"}},
			{defence: "multipart", attacks: []string{"multipart: an extended name", "multipart: two Content-Dispositions the other way", "multipart: the author's boundary", "overrides behind a boundary within a line"}},
			{defence: "once", attacks: []string{"any-parameter credential twice", "header credential in two headers"}},
			{defence: "scrub-headers", attacks: []string{"echo in the place location", "trailers read raw"}},
			{defence: "forms", attacks: []string{"echo as base64-1 of HTTPBIN_TOKEN", "echo as hex-upper of HTTPBIN_TOKEN", "echo of a cookie's value, decoded and in the place body"}},
			{defence: "charset", attacks: []string{"echo in utf-32-be as json-u", "echo in cp037 as base64-1", "echo in utf-16-le as hex"}},
			{defence: "compression", attacks: []string{"compression as an oracle, asked for", "compression as an oracle, of a server that compresses without asking"}},
			{defence: "codings", attacks: []string{"echo under br", "echo under zstd"}},
			{defence: "mcp-bearer", attacks: []string{"a wrong bearer", "a part of the bearer"}},
			{defence: "hold-back", attacks: []string{"echo cut once after 18 bytes"}},
			{defence: "shim-container", attacks: []string{"docker-shim: exec in another container"}},
			{defence: "shim-body", attacks: []string{"docker-shim: Privileged", "docker-shim: User root", "docker-shim: Cmd of a shell"}},
			{defence: "shim-ids", attacks: []string{"docker-shim: start, with an upgrade, of an id it did not create"}},
		}},
		{tenants: true, controls: []control{
			{defence: "tenant-apis", attacks: []string{"tenants: the host of another's API", "tenants: narrowing a run to another's API", "tenants: list_apis"}},
			{defence: "tenant-sessions", attacks: []string{"tenants: another's session"}},
			{defence: "tenant-share", attacks: []string{"tenants: a flood of runs"}},
			{defence: "tenant-runs", attacks: []string{"tenants: another's run"}},
			{defence: "background-runs", attacks: []string{"tenants: a flood of background runs"}},
			{defence: "private-files", attacks: []string{"tenants: files of another's run"}},
		}},
		{tenants: true, controls: []control{
			{defence: "tenant-hosts", attacks: []string{"tenants: the host of another's API", "tenants: the token name of another's API, at one's own host"}},
		}},
		{controls: []control{
			{defence: "alarm-ends-run", attacks: []string{"after a canary: the run goes on sending"}},
			{defence: "freeze", attacks: []string{"after a canary: the session runs code again"}},
			{defence: "explicit-approval", attacks: []string{"a client that accepts each form by itself", "a client that accepts each form by itself, without a session"}},
			{defence: "dry-run", attacks: []string{
				"a dry run that sends: POST", "a dry run that sends: DELETE", "a dry run that sends: an override in a header", "a dry run that sends: GET with a body",
				"a dry run that sends: a WebSocket", "a dry run that sends: after the end of the plan", "a dry run that sends: a body that is too large",
			}},
			{defence: "final-headers", attacks: []string{"Connection: close, Content-Type, on a form that overrides the method"}},
			{defence: "scrub-body", attacks: []string{"echo as raw of HTTPBIN_TOKEN", "echo framed by chunk7", "OTHER_TOKEN read through httpbin.test"}},
			{defence: "time-limit", attacks: []string{"Python: endless loop"}, more: []string{"endless loop"}, patience: 12 * time.Second},
			{defence: "memory-limit", attacks: []string{"buffers of 1.5 GiB"}, more: []string{"shared buffers of 2.5 GiB", "Python: buffers of 2.5 GiB"}},
			{defence: "host-files", attacks: []string{"importing /proc/1/mountinfo as text", "importing /proc/self/environ as a module", "importing /proc/1/mountinfo by a type reference", "Python: files of the machine"}},
		}},
		{memory: true, controls: []control{
			{defence: "output-limit", attacks: []string{"output flood"}, more: []string{"Python: output flood"}, patience: 12 * time.Second},
		}},
		{config: world.Config{Interpreter: "intruder"}, controls: []control{
			{defence: "seccomp", attacks: []string{"escaped: kernel interfaces", "escaped: sockets of other kinds"}},
			{defence: "capabilities", attacks: []string{"escaped: who am I"}},
			{defence: "skill-links", attacks: []string{"escaped: a symbolic link to what mcp-server is"}},
			{defence: "kill", attacks: []string{"escaped: stay behind a run that is ended"}},
			{defence: "fence", attacks: []string{"late messages of an older lease"}},
		}},
		{config: world.Config{Interpreter: "intruder"}, controls: []control{
			{defence: "seccomp", attacks: []string{"escaped: memory bomb in memfds", "escaped: memory bomb in shared pages given back", "escaped: memory bomb in attributes of files", "escaped: memory bomb in sockets of many tables", "Python: kernel interfaces by ctypes", "Python: sockets of other kinds", "Python: processes", "Python: a storm of forks", "Python: what holds up the programs of others"}, more: []string{"escaped: memory bomb in memfds on their way"}},
			{defence: "pending-signals", attacks: []string{"Python: timers without end", "Python: signals without end"}},
			{defence: "memory-sum", attacks: []string{"escaped: memory bomb in children", "escaped: memory bomb in sockets to themselves"}},
			{defence: "unnamed", attacks: []string{"escaped: memory bomb in files without a name"}},
			{defence: "host-files", attacks: []string{"escaped: files of the kernel and the host"}},
		}},
		{config: world.Config{Interpreter: "intruder"}, controls: []control{
			{defence: "netns", attacks: []string{"escaped: DNS outside the catalog", "escaped: TLS to a host in no API", "Python: DNS outside the catalog", "Python: TLS to a host in no API"}},
			{defence: "capabilities", attacks: []string{"Python: who am I"}},
		}},
	}
}

// inside are defences by the package whose TestDisarmed mounts their attacks, because those need a place that no attack
// of the suite has: the slot of an MCP server, the credentials of the proxy, or a pod that shares its proxy.
func inside() map[string][]string {
	return map[string][]string{
		"./proxy/internal/control":     {"held-by", "plan-by", "scrub-stored", "proxy-database"},
		"./proxy/internal/approval":    {"plan-once", "plan-digest", "approval-run", "approval-path", "plan-words", "plan-type"},
		"./proxy/internal/egress":      {"server-in-run", "server-calls", "server-hosts", "server-host", "install-credential", "signature", "ledger-required", "etag", "rule-path", "message-framing", "idempotency", "memory-budget", "call-run", "call-tenant", "call-end", "tenant-hosts", "shared-state", "single-sending"},
		"./proxy/internal/shareddb":    {"database-turns"},
		"./internal/dialguard":         {"database-address"},
		"./proxy/internal/upstream":    {"proxied-address"},
		"./mcp-server/internal/broker": {"question-secret", "question-session", "dry-run-tools", "dry-run-approved", "place-length", "frame-rate"},
		"./proxy/internal/mint": {"login-state", "login-issuer", "stale-token", "minted-layer", "store-first", "publish-first",
			"single-flight", "mint-echo"},
		"./sandbox-image/cmd/sandboxd":      {"code-packages", "server-package", "server-group", "server-home", "network-closed", "closed-folders", "folder-choice", "folder-files", "container-writes"},
		"./sandbox-image/internal/confine":  {"host-files"},
		"./internal/membudget":              {"memory-patience"},
		"./proxy/internal/podslots":         {"pod-address"},
		"./sandbox-image/internal/packages": {"package-lock", "package-files", "package-checksums", "package-hooks"},
		"./sandbox-image/internal/jail":     {"package-wheels"},
		"./sandbox-image/internal/output":   {"file-names", "out-links", "out-kinds", "out-size", "out-count"},
		"./mcp-server/cmd/mcp-server":       {"freeze-elsewhere", "proxy-schema"},
		"./mcp-server/internal/history":     {"scrub-files", "file-page", "tenant-history"},
		"./mcp-server/internal/execution":   {"environ-apis"},
		"./mcp-server/internal/tools":       {"file-tenant", "image-size", "task-user"},
		"./mcp-server/internal/transport":   {"unread-answers", "answer-memory", "session-user", "listen-version"},
		"./mcp-server/internal/guard":       {"public-paths", "client-stream", "mcp-host", "mcp-origin"},
		"./mcp-server/internal/authserver": {"client-code", "client-replay", "client-challenge", "client-verifier", "client-redirect", "client-scheme", "client-resource",
			"client-reuse", "client-tenant", "client-unowned", "client-document", "dialguard", "client-origin", "client-form", "client-frames", "client-attempts", "client-flood", "client-room", "client-once", "client-bound", "client-approved",
			"client-body", "client-cache", "client-cookie", "client-expiry", "client-issuer", "client-kind", "client-metadata", "client-name", "client-owner", "client-repeated", "client-url"},
		"./mcp-server/internal/accesstoken": {"login-audience", "login-fetches", "token-issuer", "token-signature", "token-time", "introspect-active", "introspect-issuer", "introspect-expiry", "introspect-bound", "introspect-fresh", "introspect-flood"},
		"./sandbox-image/sandboxapi":        {"file-share"},
		"./cli/internal/cli":                {"saved-names", "setup-choice"},
		"./cli/internal/embedded":           {"folder-readonly"},
		"./cli/internal/hostfolder":         {"folder-check", "folder-links"},
		"./cli/internal/setuppage":          {"setup-user", "setup-host", "setup-origin", "setup-link", "setup-once", "setup-frames"},
		"./mcp-server/internal/skill":       {"skill-pin"},
		"./mcp-server/internal/telemetry":   {"trace-method", "telemetry-debug"},
		"./proxy/ledger":                    {"ledger-hash", "ledger-signature", "ledger-known"},
	}
}

// TestInside switches each of those defences off and mounts its attack.
// Promise: shared-runs, operators-decisions, servers-reach-less, one-way-to-a-server, first-installed-package, questions-reach-their-user, scrubbed-before-use, never-stale-never-open, logins-belong-to-their-user, a-plan-is-what-was-shown, calls-end-with-their-run, server-requests-belong-to-one-run, files-are-data, folders-stay-closed, never-printed, tenant-sessions, tenant-shares, setup-page, several-proxies
func TestInside(t *testing.T) {
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	takeTurn(t, attack.Processes)
	args := slices.AppendSeq([]string{"test", "-vet=off", "-ldflags=-s -w", "-tags", "disarm", "-count=1", "-v", "-run", "^TestDisarmed$"}, maps.Keys(inside()))
	cmd := exec.CommandContext(t.Context(), "go", args...) //nolint:gosec // fixed arguments
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOPROXY=off",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+os.Getenv(world.OverlayVar)) // also for programs that the tests build
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for folder, defences := range inside() {
		for _, d := range defences {
			if !bytes.Contains(out, []byte("--- PASS: TestDisarmed/"+d+" ")) {
				t.Errorf("%s: no attack without %q succeeded", folder, d)
			}
		}
	}
}

// TestNamed: every attack of a control is one of the suite, in whatever mode.
func TestNamed(t *testing.T) {
	suite := map[string]bool{}
	for _, a := range attack.Suite() {
		suite[a.Name] = true
	}
	for _, g := range groups() {
		for _, c := range g.controls {
			for _, name := range slices.Concat(c.attacks, c.more) {
				if !suite[name] {
					t.Errorf("%s: no attack is named %q", c.defence, name)
				}
			}
		}
	}
}

// TestControls switches each defence off and mounts its attacks.
// Promise: checks-can-fail
func TestControls(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: Docker's images are the shipped ones")
	}
	suite := map[string]attack.Attack{}
	for _, a := range attack.Suite() {
		suite[a.Name] = a
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| defence | attack | seen without it |\n|---|---|---|\n")
	for i, g := range groups() {
		t.Run(fmt.Sprint(i), func(t *testing.T) { mount(t, &b, suite, g) })
	}
	fmt.Println(b.String())
}

// takeTurn waits for this test's turn at what the machine has only once, and keeps it until the test has ended.
func takeTurn(t *testing.T, what string) {
	t.Helper()
	release, err := turn.Take(t.Context(), what)
	testkit.Must(t, err)
	t.Cleanup(release)
}

func mount(t *testing.T, b *strings.Builder, suite map[string]attack.Attack, g group) {
	var off []string
	for _, c := range g.controls {
		off = append(off, c.defence)
	}
	switchOff(t, off...)
	if g.tenants {
		path, err := attack.TokensFile()
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(filepath.Dir(path))
		g.config = world.Config{Slots: 8, Env: map[string]string{"MCP_AUTH_TOKEN": attack.Token, "MCP_TOKENS_FILE": path}}
	}
	if g.memory {
		takeTurn(t, attack.Memory)
	}
	w := world.Start(t, g.config)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	for _, c := range g.controls {
		attacks := c.attacks
		if testkit.IsThorough() {
			attacks = slices.Concat(attacks, c.more)
		}
		for _, name := range attacks {
			a, ok := suite[name]
			if !ok {
				t.Errorf("%s: no attack is named %q", c.defence, name)
				continue
			}
			if a.Root && os.Geteuid() != 0 {
				testkit.SkipBecause(t, "only root can mount: "+name)
			}
			patience := cmp.Or(c.patience, time.Minute)
			if a.Weighed {
				patience += 10 * time.Minute // for its turn
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			o := attack.Run(ctx, w, a)
			cancel()
			fmt.Fprintf(b, "| %s | %s | %s |\n", c.defence, name, strings.NewReplacer("|", `\|`, "\n", " ").Replace(fmt.Sprintf("%.120s", o.Seen)))
			if o.Held {
				t.Errorf("%s is off, and %q was held: %s\n%.1500s", c.defence, name, o.Seen, o.Detail)
			}
		}
	}
}

// TestComplete checks that every defence that is marked in the sources has a control here.
// Promise: checks-can-fail
func TestComplete(t *testing.T) {
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	controlled := map[string]bool{}
	for _, g := range groups() {
		for _, c := range g.controls {
			controlled[c.defence] = len(c.attacks) > 0
		}
	}
	for _, defences := range inside() {
		for _, d := range defences {
			controlled[d] = true
		}
	}
	found, err := armed.Find(root)
	testkit.Must(t, err)
	for _, name := range found {
		if !controlled[name] {
			t.Errorf("%q is marked, and no control switches it off", name)
		}
	}
	for name := range controlled {
		if !slices.Contains(found, name) {
			t.Errorf("no statement is marked //defence:%s", name)
		}
	}
}

// TestDoctor checks that codeforge doctor --attack notices that the check of Host is off, and exits with an error.
// Promise: checks-can-fail
func TestDoctor(t *testing.T) {
	if world.CurrentMode() != world.Embedded {
		t.Skip("embedded mode only: Docker's images are the shipped ones")
	}
	switchOff(t, "mcp-host")
	w := world.Start(t, world.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out, code, err := world.Tool(ctx, world.Command{
		Dir: w.Dir, Args: []string{"doctor", "--attack", "--state", w.Process.State, "--apis", filepath.Join(w.Dir, "apis")},
	})
	if err != nil || code != 1 || strings.Count(out, "NOT HELD") != 1 || !strings.Contains(out, "NOT HELD MCP endpoint: a foreign Host") {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
}

// TestShipped checks that binaries built without the overlay contain nothing of it.
// Promise: checks-can-fail
func TestShipped(t *testing.T) {
	root, err := world.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := world.BuildShipped(root)
	testkit.Must(t, err)
	for _, p := range []string{"codeforge", "egress-proxy", "sandboxd", "mcp-server", "docker-shim", "mcp-bridge"} {
		path := filepath.Join(dir, p)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{disarm.Variable, disarm.File, "host-agreement", "scrub-headers", "hold-back", "last-scrub", "skill-links", "shim-body", "memory-limit", "message-bounds", "tool-bounds"} {
			if bytes.Contains(data, []byte(word)) {
				t.Errorf("%s has %q in it", p, word)
			}
		}
		for _, args := range [][]string{{"tool", "nm", path}, {"version", "-m", path}} {
			out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput() //nolint:gosec // fixed arguments
			if err != nil {
				t.Fatalf("go %v: %v\n%s", args, err, out)
			}
			if bytes.Contains(out, []byte("disarm")) {
				t.Errorf("go %s of %s names disarm", args[0], p)
			}
		}
	}
}
