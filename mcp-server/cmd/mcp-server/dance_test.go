package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/net/html"

	"github.com/codeforge-mcp/codeforge/internal/testca"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// tlsProxies makes TLS proxies on localhost, as Caddy or nginx are in front of a server.
type tlsProxies struct {
	ca   *testca.CA
	file string // the authority's certificate
}

func newProxies(t *testing.T) tlsProxies {
	t.Helper()
	ca, err := testca.New("proxies")
	testkit.Must(t, err)
	file := filepath.Join(t.TempDir(), "ca.pem")
	testkit.Must(t, os.WriteFile(file, ca.PEM(), 0o600))
	return tlsProxies{ca, file}
}

// open starts a proxy to a server that dial connects to, and returns its origin.
func (p tlsProxies) open(t *testing.T, dial func(context.Context) (net.Conn, error)) string {
	t.Helper()
	cert, err := p.ca.IssueLeaf("localhost", "localhost", time.Now().Add(time.Hour))
	testkit.Must(t, err)
	s := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "behind", r.In.Host
		},
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }},
		FlushInterval: -1,
	})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*cert}}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	testkit.Must(t, err)
	return "https://localhost:" + port
}

// user is a person with a browser, who fills in each form with what they know of its fields, and else with their name.
type user struct {
	http.Client
	name  string
	knows map[string]string
}

func (p tlsProxies) newUser(t *testing.T, name string, knows map[string]string) *user {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testkit.Must(t, err)
	return &user{name: name, knows: knows, Client: http.Client{
		Jar: jar, Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.ca.CertPool()}},
	}}
}

// follow opens an address, fills in the forms that come, and returns the last page.
func (u *user) follow(t *testing.T, address string) string {
	t.Helper()
	resp, err := u.Get(address)
	for range 10 {
		testkit.Must(t, err)
		page, err2 := io.ReadAll(resp.Body)
		testkit.Must(t, errors.Join(err2, resp.Body.Close()))
		action, form := u.fillForm(t, string(page))
		if form == nil {
			return resp.Status + " " + string(page)
		}
		to, err2 := resp.Request.URL.Parse(action)
		testkit.Must(t, err2)
		req, err2 := http.NewRequestWithContext(t.Context(), http.MethodPost, to.String(), strings.NewReader(form.Encode()))
		testkit.Must(t, err2)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", resp.Request.URL.Scheme+"://"+resp.Request.URL.Host)
		resp, err = u.Do(req)
	}
	t.Fatal("one form after the other")
	return ""
}

// fillForm returns the first form of a page as the user sends it.
func (u *user) fillForm(t *testing.T, page string) (action string, form url.Values) {
	t.Helper()
	node, err := html.Parse(strings.NewReader(page))
	testkit.Must(t, err)
	for n := range node.Descendants() {
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
		}
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "button" && form != nil && attr["name"] != "" && !form.Has(attr["name"]): // the first one
			form.Set(attr["name"], attr["value"])
		case n.Data == "form" && form == nil:
			action, form = attr["action"], url.Values{}
		case n.Data == "input" && form != nil && attr["name"] != "" && attr["type"] != "submit":
			value := attr["value"]
			if value == "" {
				value = u.name
				if known, ok := u.knows[attr["name"]]; ok {
					value = known
				}
			}
			form.Set(attr["name"], value)
		}
	}
	return action, form
}

// startNode starts a script of testdata with the packages of a folder, and returns its lines.
func (p tlsProxies) startNode(t *testing.T, modules, script string, args ...string) <-chan string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join("testdata", script))
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, script), text, 0o600))
	testkit.Must(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	return p.startScript(t, modules, filepath.Join(dir, script), args...)
}

// startScript starts a script, and returns its lines.
func (p tlsProxies) startScript(t *testing.T, modules, script string, args ...string) <-chan string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "NODE_EXTRA_CA_CERTS="+p.file)
	cmd.Stderr, cmd.WaitDelay = t.Output(), time.Second
	out, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}

// readLine waits for a line that begins with a word, and returns the rest of it.
func readLine(t *testing.T, lines <-chan string, word string) string {
	t.Helper()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the program ended before it said %q", word)
			}
			if rest, ok := strings.CutPrefix(line, word+" "); ok {
				return rest
			}
		case <-time.After(testkit.Patience):
			t.Fatalf("no line begins with %q", word)
		}
	}
}

// startProvider starts a real OpenID provider with tokens in a format. It cannot be reached while away. It returns its
// issuer.
func startProvider(t *testing.T, proxies tlsProxies, format string, away *atomic.Bool) string {
	t.Helper()
	modules := testkit.InstallPackages(t, "oidc", "oidc-provider@9.13.3")
	socket := filepath.Join(t.TempDir(), "oidc.sock")
	issuer := proxies.open(t, func(ctx context.Context) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("away")
		}
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	})
	if line := <-proxies.startNode(t, modules, "provider.mjs", issuer, socket, format); line != "ready" {
		t.Fatalf("the provider: %s", line)
	}
	return issuer
}

// startWithProvider starts a provider and the program behind a TLS proxy, for the tenant ann. The program asks the
// provider about opaque tokens. It returns the public URL.
func startWithProvider(t *testing.T, proxies tlsProxies, format string) (*program, string) {
	t.Helper()
	return startWithIssuer(t, proxies, startProvider(t, proxies, format, new(atomic.Bool)), format)
}

func startWithIssuer(t *testing.T, proxies tlsProxies, issuer, format string) (*program, string) {
	t.Helper()
	env := map[string]string{"OIDC_ISSUER": issuer, "OIDC_CA_FILE": proxies.file, "OIDC_SCOPES": "openid"}
	if format == "opaque" {
		env["OIDC_INTROSPECTION_ID"], env["OIDC_INTROSPECTION_SECRET_FILE"] = "forge", filepath.Join(t.TempDir(), "secret")
		testkit.Must(t, os.WriteFile(env["OIDC_INTROSPECTION_SECRET_FILE"], []byte("secret of the forge\n"), 0o600))
	}
	return startBehind(t, proxies, `{"tenants": {"ann": {"logins": ["ann"], "apis": ["stripe"]}}}`, env)
}

// startBehind starts the program behind a TLS proxy, and returns the public URL.
func startBehind(t *testing.T, proxies tlsProxies, tenants string, env map[string]string, flags ...string) (*program, string) {
	t.Helper()
	var addr string
	public := proxies.open(t, func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", addr) })
	file := filepath.Join(t.TempDir(), "tenants.json")
	testkit.Must(t, os.WriteFile(file, []byte(tenants), 0o600))
	env["MCP_TOKENS_FILE"], env["PUBLIC_URL"] = file, public
	p := start(t, 2, env, append(flags, "--tenants", t.TempDir())...)
	addr = p.addr
	return p, public
}

// TestOfficialOAuthClient: the official SDK's own client finds the provider, registers, logs in, and refreshes its token,
// with JWTs and with opaque tokens. A user who is in no tenant gets no further.
func TestOfficialOAuthClient(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"jwt", "opaque"} {
		t.Run(format, func(t *testing.T) { driveOfficial(t, format) })
	}
}

func driveOfficial(t *testing.T, format string) {
	t.Helper()
	proxies, modules := newProxies(t), testkit.InstallClients(t)
	_, public := startWithProvider(t, proxies, format)
	drive := func(name string) <-chan string {
		lines := proxies.startNode(t, modules, "login.mjs", public+"/mcp")
		if page := proxies.newUser(t, name, nil).follow(t, readLine(t, lines, "open")); !strings.Contains(page, "logged in") {
			t.Errorf("the last page of %s: %s", name, page)
		}
		return lines
	}
	lines := drive("ann")
	for _, step := range []string{"login", "refresh"} {
		if got := readLine(t, lines, step); !strings.Contains(got, `"name":"stripe"`) {
			t.Errorf("%s: %s", step, got)
		}
	}
	if got := readLine(t, lines, "renewed"); got != "true" {
		t.Errorf("renewed: %s", got)
	}
	for line := range drive("mallory") {
		if strings.HasPrefix(line, "login") {
			t.Errorf("a user of no tenant: %s", line)
		}
	}
}

// TestRemoteOAuthClient: mcp-remote does the same for a client that speaks stdio.
func TestRemoteOAuthClient(t *testing.T) {
	t.Parallel()
	proxies, modules := newProxies(t), testkit.InstallClients(t)
	_, public := startWithProvider(t, proxies, "jwt")
	driveRemote(t, proxies, modules, public, proxies.newUser(t, "ann", nil))
}

// driveRemote lets a user connect through mcp-remote and call a tool.
func driveRemote(t *testing.T, proxies tlsProxies, modules, public string, u *user) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), filepath.Join(modules, "mcp-remote/dist/proxy.js"), public+"/mcp")
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "NODE_EXTRA_CA_CERTS="+proxies.file, "MCP_REMOTE_CONFIG_DIR="+t.TempDir(), "PATH=/nonexistent")
	log := &testkit.Buffer{}
	cmd.Stderr = log
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log.String())
		}
	})
	go func() {
		for end := time.Now().Add(testkit.Patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, rest, ok := strings.Cut(log.String(), "authorize this client by visiting:\n"); ok {
				if line, _, ok := strings.Cut(rest, "\n"); ok {
					u.follow(t, strings.TrimSpace(line))
					return
				}
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "stdio", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	testkit.Must(t, err)
	defer s.Close()
	if _, got := call(t, s, "list_apis", map[string]any{}); !strings.Contains(strings.Join(got, ""), `"name":"stripe"`) {
		t.Errorf("%q", got)
	}
}
