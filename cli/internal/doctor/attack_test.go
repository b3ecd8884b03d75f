package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/cli/internal/mcpclient"
	"github.com/codeforge-mcp/codeforge/cli/internal/statedir"
	"github.com/codeforge-mcp/codeforge/internal/secret"
	"github.com/codeforge-mcp/codeforge/internal/settings"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/sandbox-image/sandboxapi"
)

// TestJudges: an attempt that could not be made has not held.
func TestJudges(t *testing.T) {
	ended := func(r sandboxapi.Reason) *sandboxapi.Exit { return &sandboxapi.Exit{Reason: r} }
	const held, failed = `{"held":true,"seen":"PermissionDenied"}`, `{"held":false,"seen":"a  connection"}`
	for _, c := range []struct {
		judge func(mcpclient.Result) (string, bool)
		run   mcpclient.Result
		want  string
	}{
		{checkAllRefused, mcpclient.Result{Output: held + "\nnoise\n" + `{"seen":"x"}` + "\n" + held}, "2 of 2 refused true"},
		{checkAllRefused, mcpclient.Result{Output: held + "\n" + failed + "\n" + held}, "a connection false"},
		{checkAllRefused, mcpclient.Result{Output: "NotCapable: net", Failed: true}, "the interpreter refuses true"},
		{checkAllRefused, mcpclient.Result{Output: held + "\nNotCapable: net", Failed: true}, "1 of 1 refused true"},
		{checkAllRefused, mcpclient.Result{Output: "NotCapable: net"}, "could not be tried: NotCapable: net false"},
		{checkAllRefused, mcpclient.Result{Output: strings.Repeat("x ", 200), Failed: true}, "could not be tried: " + strings.Repeat("x ", 60) + "... false"},
		{checkModuleNotLoaded, mcpclient.Result{Output: "error: Module not found", Failed: true}, "module not found true"},
		{checkModuleNotLoaded, mcpclient.Result{Output: "Requires read access", Failed: true}, "requires read access true"},
		{checkModuleNotLoaded, mcpclient.Result{Output: "Permission denied"}, "it was read false"},
		{checkModuleNotLoaded, mcpclient.Result{Output: "SyntaxError", Failed: true}, "it was read false"},
		{checkNothingRead, mcpclient.Result{Output: held}, "nothing read true"},
		{checkNothingRead, mcpclient.Result{Output: failed}, "a connection false"},
		{checkNothingRead, mcpclient.Result{Output: "no", Failed: true, Exit: ended(sandboxapi.Exited)}, "nothing read true"},
		{checkNothingRead, mcpclient.Result{Output: "no", Exit: ended(sandboxapi.Exited)}, "could not be tried: no false"},
		{checkNothingRead, mcpclient.Result{Output: "no", Failed: true, Exit: ended(sandboxapi.OOM)}, "could not be tried: no false"},
		{checkNothingRead, mcpclient.Result{Output: "no", Failed: true}, "could not be tried: no false"},
		{checkEndedBy(sandboxapi.OOM), mcpclient.Result{Exit: ended(sandboxapi.OOM)}, "ended: oom true"},
		{checkEndedBy(sandboxapi.OOM), mcpclient.Result{Exit: ended(sandboxapi.Exited)}, "ended: exited false"},
		{checkEndedBy(sandboxapi.OOM), mcpclient.Result{Output: "on"}, "not ended: on false"},
		{checkOutputBounded, mcpclient.Result{Output: "abc", Exit: ended(sandboxapi.Exited)}, "3 bytes shown true"},
		{checkOutputBounded, mcpclient.Result{Output: strings.Repeat("a", 8<<20-1), Exit: ended(sandboxapi.Exited)}, "8388607 bytes shown true"},
		{checkOutputBounded, mcpclient.Result{Output: strings.Repeat("a", 8<<20), Exit: ended(sandboxapi.Exited)}, "8388608 bytes shown false"},
		{checkOutputBounded, mcpclient.Result{Output: "abc"}, "3 bytes shown false"},
	} {
		seen, held := c.judge(c.run)
		if got := fmt.Sprint(seen, " ", held); got != c.want {
			t.Errorf("%.80q: %s, want %s", c.run.Output, got, c.want)
		}
	}
}

// TestReadAttacks leaves out the attacks that a target does not allow. 20 seconds is the usual limit.
func TestReadAttacks(t *testing.T) {
	const file = "// comment\n\n// name: a\n// expected: refused\nfirst();\n\n// name: b\n// needs: host\n// seconds: 7.5\n// judge: oom\nsecond();\n" +
		"\n// name: c\n// needs: memory\nx\n\n// name: d\n// needs: closed\nx\n"
	for _, c := range []struct {
		target attackTarget
		want   string
	}{
		{attackTarget{}, "a 20, d 20"}, {attackTarget{open: true}, "a 20"}, {attackTarget{host: "a.test", open: true}, "a 20, b 7.5"},
		{attackTarget{memory: 1, open: true}, "a 20, c 20"},
	} {
		var got []string
		for _, a := range readAttacks(c.target, file, "prelude\n") {
			got = append(got, fmt.Sprint(a.name, " ", a.seconds))
			if a.judge == nil || !strings.HasPrefix(a.code, "prelude\n") || strings.Contains(a.code, "//") {
				t.Errorf("%s: %q", a.name, a.code)
			}
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%+v: %s, want %s", c.target, text, c.want)
		}
	}
	a := readAttacks(attackTarget{}, file, "prelude\n")[0]
	if a.expected != "refused" || a.code != "prelude\nfirst();\n" {
		t.Errorf("%+v", a)
	}
	for _, a := range listAttacks(attackTarget{host: "a.test", memory: 5, token: secret.New("t")}) {
		if a.do == nil && (a.judge == nil || !strings.HasPrefix(a.code, "const open = false, host = \"a.test\", memory = 5;\n")) {
			t.Errorf("%s has no judge, or the code %.80q", a.name, a.code)
		}
	}
}

// TestRunAttacks runs the attacks against a stand-in that withstands each attack, and against one that withstands no attack.
func TestRunAttacks(t *testing.T) {
	isHeld := true
	s := mcp.NewServer(&mcp.Implementation{Name: "stand-in"}, nil)
	s.AddTool(&mcp.Tool{Name: "execute_code", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(`{"held":%t,"seen":"this"}`, isHeld)}}}, nil
	})
	next := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isDoctor := r.Header.Get("Accept") == "application/json, text/event-stream" && r.Header.Get("Content-Type") == "application/json"
		switch {
		case isHeld && (strings.HasSuffix(r.Host, ".invalid") || r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""):
			w.WriteHeader(http.StatusForbidden)
		case isHeld && r.Header.Get("Authorization") != "Bearer token" && isDoctor:
			w.WriteHeader(http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	}))
	defer web.Close()
	state, err := statedir.CreateDir(t.TempDir())
	testkit.Must(t, err)
	list := []*catalog.API{{Name: "a", Active: true}, {Name: "b", Active: true}, {Name: "c"}}
	for i, hosts := range [][]string{{"*.wild.test", "port.test:8443"}, {"plain.test"}, {"off.test"}} {
		for _, host := range hosts {
			h, err := catalog.ParseHostPattern(host)
			testkit.Must(t, err)
			list[i].Hosts = append(list[i].Hosts, h)
		}
	}
	c := Config{
		State: state, Catalog: catalog.NewNamesOnly(list), Settings: settings.Settings{Memory: 1 << 30},
		Server: mcpclient.Config{URL: web.URL, State: state, Token: secret.New("token")},
	}
	for want, cat := range map[string]*catalog.Catalog{"plain.test": c.Catalog, "": catalog.NewNamesOnly([]*catalog.API{list[0], list[2]})} {
		if got := findActiveHost(cat); got != want {
			t.Errorf("the host is %q, want %q", got, want)
		}
	}
	run := func() (got []AttackOutcome) {
		testkit.Must(t, RunAttacks(t.Context(), c, func(o AttackOutcome) { got = append(got, o) }))
		return got
	}
	all := len(listAttacks(attackTarget{host: "plain.test", memory: 1, token: secret.New("x")}))
	got := run()
	if want := (AttackOutcome{"a host in no API", "refused", "1 of 1 refused", true}); len(got) != all || !cmp.Equal(got[0], want) {
		t.Errorf("%d outcomes, want %d; the first is %+v", len(got), all, got[0])
	}
	endpoint := got[all-5:]
	for i, want := range []string{"403", "403", "403", "401", "401"} {
		if o := endpoint[i]; o.Seen != want || o.Expected != want || !o.Held {
			t.Errorf("%+v, want %s", o, want)
		}
	}
	isHeld = false
	for _, o := range run() {
		if o.Held && !strings.Contains(o.Name, "foreign Host") { // the SDK refuses that one itself
			t.Errorf("held without a defence: %+v", o)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	n := 0
	if err := RunAttacks(ctx, c, func(AttackOutcome) { n++; stop() }); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("after a cancellation: %d attacks, %v", n, err)
	}
	web.Close()
	if err := RunAttacks(t.Context(), c, nil); err == nil {
		t.Error("a closed server was attacked")
	}
	wrong := errors.New("wrong")
	if err := RunAttacks(t.Context(), Config{SettingsErr: wrong}, nil); !errors.Is(err, wrong) {
		t.Errorf("wrong settings: %v", err)
	}
	for _, a := range endpointAttacks(attackTarget{token: secret.New("x")}) {
		if seen, held := a.runAttack(t.Context(), attackTarget{url: web.URL}); held || a.expected == "403" && !strings.HasPrefix(seen, "could not be tried: ") {
			t.Errorf("%s: %s, %t against a closed server", a.name, seen, held)
		}
	}
	if n := len(endpointAttacks(attackTarget{})); n != 3 {
		t.Errorf("%d attacks on an endpoint without a token", n)
	}
	if _, err := sendInitialize(t.Context(), attackTarget{url: "http://%zz"}, secret.Value{}, func(*http.Request) {}); err == nil {
		t.Error("a bad URL was asked")
	}
}
