package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/server"
	"github.com/codeforge-mcp/codeforge/codeforge/internal/terminal"
	"github.com/codeforge-mcp/codeforge/proxy/controlapi"
	"github.com/codeforge-mcp/codeforge/sandbox-image/runapi"
)

// TestExitCode: codeforge run has the script's exit code.
func TestExitCode(t *testing.T) {
	for _, row := range []struct {
		r    server.Result
		want int
	}{
		{server.Result{}, 0},
		{server.Result{Failed: true}, ExitNotRun},
		{server.Result{Failed: true, Exit: &runapi.Exit{Reason: runapi.Exited, Code: 7}}, 7},
		{server.Result{Failed: true, Exit: &runapi.Exit{Reason: runapi.Timeout, Code: 137}}, ExitTimeout},
		{server.Result{Failed: true, Exit: &runapi.Exit{Reason: runapi.OOM}}, ExitFailed},
		{server.Result{Failed: true, Exit: &runapi.Exit{Reason: runapi.OOM, Code: 137}}, 137},
	} {
		if got := exitCode(row.r); got != row.want {
			t.Errorf("exitCode(%+v) = %d, want %d", row.r, got, row.want)
		}
	}
}

// TestEveryCommandDocumentsItself: a summary, exit codes, and a help text for every flag.
func TestEveryCommandDocumentsItself(t *testing.T) {
	for _, c := range commands() {
		if c.hidden {
			continue
		}
		if c.summary == "" || !strings.HasPrefix(c.usage, c.name) {
			t.Errorf("%s: summary %q, usage %q", c.name, c.summary, c.usage)
		}
		if c.name != "version" && !strings.Contains(c.details, "Exit codes:") {
			t.Errorf("%s: its exit codes are not documented", c.name)
		}
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

// TestProbe: api test sends a request that changes nothing, with the token where it may be swapped.
func TestProbe(t *testing.T) {
	header := catalog.Surface{Kind: catalog.SurfaceHeader}
	for _, row := range []struct {
		name                       string
		api                        *catalog.API
		method, url, header, value string
	}{
		{"header", api(nil, nil, "a.example", header), "GET", "https://a.example/v1", "Authorization", "Bearer X_TOKEN"},
		{"GET restricted", api([]string{"GET"}, nil, "a.example", header), "HEAD", "https://a.example/v1", "Authorization", "Bearer X_TOKEN"},
		{"OPTIONS only", api(nil, []string{"OPTIONS", "POST"}, "a.example"), "OPTIONS", "https://a.example/v1", "", ""},
		{"named header", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceHeader, Field: "X-Api-Key"}), "GET", "https://a.example/v1", "X-Api-Key", "X_TOKEN"},
		{"query", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceQuery, Field: "key"}), "GET", "https://a.example/v1?key=X_TOKEN", "", ""},
		{"body", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceBody}), "GET", "https://a.example/v1", "", ""},
		{"any query", api(nil, nil, "a.example", catalog.Surface{Kind: catalog.SurfaceQuery}), "GET", "https://a.example/v1", "", ""},
	} {
		p, err := newProbe(row.api, "/v1")
		if err != nil || p.Method != row.method || p.URL != row.url || p.Header != row.header || p.Value != row.value {
			t.Errorf("%s: %+v, %v", row.name, p, err)
		}
	}
	for name, a := range map[string]*catalog.API{
		"no harmless method": api([]string{"GET", "HEAD", "OPTIONS"}, nil, "a.example"),
		"POST only":          api(nil, []string{"POST"}, "a.example"),
		"wildcards only":     api(nil, nil, "*.a.example"),
	} {
		if p, err := newProbe(a, "/"); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestProbeScript: a host or path cannot break out of the script.
func TestProbeScript(t *testing.T) {
	p := probe{Method: "GET", URL: `https://a.example/"); evil(); ("`, Header: "A", Value: "b\"\n"}
	got := p.script()
	if strings.Contains(got, `"); evil(); ("`) && !strings.Contains(got, `\"); evil(); (\"`) {
		t.Errorf("it broke out: %s", got)
	}
}

// TestVerdict: the verdict says what happened and what to do.
func TestVerdict(t *testing.T) {
	p := probe{Method: "GET", URL: "https://a.example/", Token: "X_TOKEN"}
	swapped := []controlapi.Swap{{Name: "X_TOKEN", In: "header:Authorization"}}
	for _, row := range []struct {
		name string
		x    *controlapi.Exchange
		ok   bool
		says string
	}{
		{"good", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 200, Swapped: swapped}, true, "X_TOKEN was swapped"},
		{"not found", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 404, Swapped: swapped}, true, "--path"},
		{"wrong credential", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 401, Swapped: swapped}, false, "check the credential"},
		{"forbidden", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 403, Swapped: swapped}, false, "permission"},
		{"their fault", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 503, Swapped: swapped}, false, "server error"},
		{"not swapped", &controlapi.Exchange{Outcome: controlapi.OutcomeServed, Status: 200}, false, "config.json"},
		{"refused", &controlapi.Exchange{Outcome: controlapi.OutcomeDenied, Status: 403, Code: "method_restricted"}, false, "method_restricted"},
		{"unreachable", &controlapi.Exchange{Outcome: controlapi.OutcomeFailed, Status: 502, Code: "upstream_tls"}, false, "ca_file"},
		{"hung up on", &controlapi.Exchange{Outcome: controlapi.OutcomeAborted, Status: 200, Code: "client_gone", Swapped: swapped}, true, "X_TOKEN was swapped"},
		{"hung up before", &controlapi.Exchange{Outcome: controlapi.OutcomeAborted, Code: "client_gone"}, false, "client_gone"},
		{"never sent", nil, false, "no request reached the proxy"},
	} {
		r := server.Result{Receipt: &controlapi.Receipt{}}
		if row.x != nil {
			r.Receipt.Exchanges = []controlapi.Exchange{*row.x}
		}
		if v := judge(p, r); v.OK != row.ok || !strings.Contains(v.Text, row.says) {
			t.Errorf("%s: %+v, want %v saying %q", row.name, v, row.ok, row.says)
		}
	}
}

// A call of an MCP server's tool shows as one, with the sizes of its arguments and result.
func TestExchangeLine(t *testing.T) {
	plain := func(_ terminal.Colour, s string) string { return s }
	x := controlapi.Exchange{
		Method: "POST", URL: "https://mcp.codeforge.internal/github/create_issue", APIs: []string{"github"},
		Outcome: controlapi.OutcomeServed, Status: 200, BytesUp: 17, BytesDown: 240, Milliseconds: 12.4,
	}
	want := "served  200 CALL   github.create_issue  17 bytes up, 240 down  12 ms"
	if got := exchangeLine(plain, x); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	x.URL, x.Code = "https://api.github.com/repos", "some_code"
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
	found, cat := inspect(e, "apis")
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
		`warning: apis/stripe/config.json: credentials.STRIPE_TOKEN: the name of a variable, which nothing replaces here; want the credential itself, or {"file": "..."} or {"env": "NAME"} in its place`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || len(cat.APIs()) != 1 {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
