package mint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/codeforge-mcp/codeforge/catalog"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
	"github.com/codeforge-mcp/codeforge/proxy/credentialapi"
	"github.com/codeforge-mcp/codeforge/proxy/internal/renewedvalues"
	"github.com/codeforge-mcp/codeforge/proxy/internal/upstream"
)

// asClient makes this test binary the client that the conformance suite starts.
const asClient = "CODEFORGE_CONFORMANCE_CLIENT"

func TestMain(m *testing.M) {
	if os.Getenv(asClient) == "1" {
		if err := conform(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// suiteWithTLS is a Transport to the suite's servers. It stands for TLS, and for secrets that look random: the servers
// speak HTTP, and the proxy refuses secrets such as test-token.
type suiteWithTLS struct{}

func (suiteWithTLS) CheckTarget(context.Context, upstream.Want, *url.URL) error { return nil }

const random = "Zq4Tk7Rb2Xc5Vn8Mw1Ls6Hd3Gj9Pf0"

var (
	toPlain = strings.NewReplacer("https://localhost", "http://localhost", "https%3A%2F%2Flocalhost", "http%3A%2F%2Flocalhost", random, "")
	toTLS   = strings.NewReplacer("http://localhost", "https://localhost", "test-token-", random+"test-token-", "test-secret-", random+"test-secret-", "-client-secret", "-client-secret"+random)
)

func (suiteWithTLS) RoundTrip(req *http.Request, _ upstream.Want) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	plain, err := http.NewRequestWithContext(req.Context(), req.Method, toPlain.Replace(req.URL.String()), strings.NewReader(toPlain.Replace(string(body))))
	if err != nil {
		return nil, err
	}
	plain.Header = req.Header
	if user, password, ok := req.BasicAuth(); ok {
		plain.SetBasicAuth(user, toPlain.Replace(password))
	}
	resp, err := http.DefaultTransport.RoundTrip(plain)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if c := resp.Header.Get("WWW-Authenticate"); c != "" {
		resp.Header.Set("WWW-Authenticate", toTLS.Replace(c))
	}
	resp.Body = io.NopCloser(strings.NewReader(toTLS.Replace(string(answer))))
	return resp, err
}

// conform logs in at the suite's server as codeforge mcp login does, with the person's browser, and calls the server
// with the token.
func conform(address string) error {
	if !strings.HasPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/") {
		return errors.New("only logins")
	}
	dir, err := os.MkdirTemp("", "conform")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	m := New(Config{Transport: suiteWithTLS{}, Values: renewedvalues.New(time.Now), Dir: dir, APIs: dir, UserAgent: "codeforge", Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	defer m.Close()
	cred, err := configure(m, dir, address)
	if err != nil {
		return err
	}
	// A server that refuses a token makes the operator log in again.
	for range 2 {
		token, err := logIn(m, cred)
		if err != nil {
			return err
		}
		var status int
		for _, method := range []string{"initialize", "tools/list", "tools/list"} {
			if status, err = callServer(address, token, method); err != nil {
				return err
			}
		}
		if status != http.StatusUnauthorized {
			break
		}
	}
	return nil
}

// logIn logs in with a browser, and returns the token.
func logIn(m *Minter, cred catalog.Credential) (string, error) {
	const port = 49152 // where no browser connects: the test is the browser
	started, err := m.BeginLogin(context.Background(), credentialapi.Login{Name: loginName, Way: credentialapi.WayBrowser, Port: port})
	if err != nil {
		return "", err
	}
	redirect, err := approveInBrowser(started)
	if err != nil {
		return "", err
	}
	if err := m.FinishLogin(context.Background(), redirect); err != nil {
		return "", err
	}
	return m.ObtainValue(context.Background(), cred)
}

// configure writes what codeforge mcp add --oauth writes, with the client of the scenario if it has one.
func configure(m *Minter, dir, address string) (cred catalog.Credential, err error) {
	var given struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
	}
	_ = json.Unmarshal([]byte(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &given) // most scenarios have none
	login := map[string]any{"resource": toTLS.Replace(address)}
	if given.ID != "" {
		login["client_id"], login["client_secret"] = given.ID, random+given.Secret
	}
	text, err := json.Marshal(map[string]any{"description": "d", "domains": []string{"localhost"}, "allow_private": []string{"127.0.0.0/8"},
		"credentials": map[string]any{loginName: map[string]any{"oauth2": login}}})
	if err != nil {
		return cred, err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "mail"), 0o700), os.WriteFile(filepath.Join(dir, "mail", "config.json"), text, 0o600)); err != nil {
		return cred, err
	}
	c, problems := catalog.Load(dir, catalog.Options{})
	if c.API("mail") == nil {
		return cred, errors.New(problems.String())
	}
	return c.API("mail").Credentials[0], m.Configure(c)
}

// approveInBrowser opens the page of the authorization server, which approves at once, and reads its redirect.
func approveInBrowser(started credentialapi.StartedLogin) (credentialapi.Redirect, error) {
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(toPlain.Replace(started.URL))
	if err != nil {
		return credentialapi.Redirect{}, err
	}
	defer resp.Body.Close()
	to, err := resp.Location()
	if err != nil {
		return credentialapi.Redirect{}, err
	}
	q := to.Query()
	return credentialapi.Redirect{ID: started.ID, State: q.Get("state"), Code: q.Get("code"), Issuer: toTLS.Replace(q.Get("iss")), Error: q.Get("error")}, nil
}

// callServer sends a request with the token, which the proxy swaps in for a name.
func callServer(address, token, method string) (status int, err error) {
	version := os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION")
	meta := map[string]any{"io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": struct{}{}, "io.modelcontextprotocol/clientInfo": map[string]string{"name": "t", "version": "1"}}
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": map[string]any{
		"protocolVersion": version, "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "t", "version": "1"}, "_meta": meta}})
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequest(http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + toPlain.Replace(token), "Content-Type": "application/json", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": method} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// notPassed are the scenarios that the client does not pass completely, each with the reason.
var notPassed = map[string]string{
	"auth/basic-cimd":    "a warning: the client is on the user's machine, and has no public document of its own",
	"auth/scope-step-up": "the operator decides about scopes, in the configuration; a server's 403 does not change them",
}

// TestLoginConformance logs in at the servers of the suite's scenarios for logins: those of the version of 2025, and those
// that are new in the one of 2026. The latter's suite has more than logins.
// Promise: logins-belong-to-their-user
func TestLoginConformance(t *testing.T) {
	modules := testkit.InstallClients(t)
	self, err := os.Executable()
	testkit.Must(t, err)
	passed, used := 0, map[string]bool{}
	for suite, version := range map[string]string{"auth": "2025-11-25", "draft": "2026-07-28"} {
		cmd := exec.CommandContext(t.Context(), testkit.NodeBinary(t), filepath.Join(modules, "conformance-next/dist/index.js"), "client", "--command", self,
			"--suite", suite, "--spec-version", version, "--timeout", strconv.FormatInt(testkit.Patience.Milliseconds(), 10))
		cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
		cmd.Env = append(os.Environ(), asClient+"=1", "NODE_PATH="+modules)
		out, _ := cmd.CombinedOutput() // an error for any scenario that fails
		for line := range strings.Lines(string(out)) {
			mark, rest, _ := strings.Cut(line, " ")
			scenario, result, _ := strings.Cut(rest, ":")
			switch {
			case !strings.HasPrefix(scenario, "auth/"):
			case mark == "✓":
				passed++
			case notPassed[scenario] != "":
				used[scenario] = true
			case mark == "✗":
				t.Errorf("%s:%s", scenario, result)
			}
		}
		if t.Failed() {
			t.Logf("%s", out)
		}
	}
	if passed < 20 || len(used) != len(notPassed) {
		t.Errorf("%d scenarios passed, and of those that cannot only %v ran", passed, used)
	}
}
