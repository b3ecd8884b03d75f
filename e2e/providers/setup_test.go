package providers

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// TestSetupLogin: the setup page adds an API with OAuth by its example, and leads to the login at a real provider. The
// token is then used, and neither the page nor the terminal has shown the client's secret.
// Promise: setup-page
func TestSetupLogin(t *testing.T) {
	world.RunInOneMode(t, "the page is of the host's command line, which is the same in each mode")
	dir := t.TempDir()
	socket := filepath.Join(dir, "oidc.sock")
	s := start(t, socket, node(t, dir, "oidc.mjs", "oidc"), "node", "oidc.mjs", "https://"+issuer, socket)
	example := provider(map[string]any{
		"auth_url": "https://" + issuer + "/auth", "client_id": "put_your_client_id_here", "client_secret": "put_your_client_secret_here",
		"scopes": []string{"openid", "offline_access", "email"}, "params": map[string]string{"prompt": "consent"},
	}, nil)
	delete(example.Config["credentials"].(map[string]any), "OTHER_USER_TOKEN") //nolint:forcetypeassert // a test's own
	w := world.Start(t, world.Config{Change: func([]world.API) []world.API { return nil }, Hosts: map[string]http.Handler{issuer: s}})
	folder := filepath.Join(w.Dir, "apis", "idp")
	example.Config["ca_file"] = filepath.Join(w.Dir, "ca.pem")
	text, err := json.Marshal(example.Config)
	testkit.Must(t, err)
	testkit.Must(t, os.Mkdir(folder, 0o777))
	testkit.Must(t, os.Chmod(folder, 0o777))                                                 //nolint:gosec // another user writes there
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "config.json.example"), text, 0o644)) //nolint:gosec // another user reads it
	p, err := world.Launch(command(t, w, "setup"))
	testkit.Must(t, err)
	defer func() { _ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL) }()
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\w+/`)
	testkit.WaitFor(t, func() bool { return link.MatchString(p.Output()) })
	at, browser := link.FindString(p.Output()), newPerson(t, nil)
	read := func(resp *http.Response, err error) string {
		t.Helper()
		testkit.Must(t, err)
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		testkit.Must(t, err)
		if resp.StatusCode != http.StatusOK || strings.Contains(string(page), "inner-canary") {
			t.Fatalf("%s: %s", resp.Status, page)
		}
		return string(page)
	}
	send := func(form string, fields url.Values) string {
		t.Helper()
		return read(browser.PostForm(at+form, fields))
	}
	read(browser.Get(at))
	page := send("choose", url.Values{"example": {"idp"}})
	choice := regexp.MustCompile(`name="choice" value="(\w+)"`).FindStringSubmatch(page)
	if !strings.Contains(page, "USER_TOKEN, client secret") || choice == nil {
		t.Fatalf("the example: %s", page)
	}
	page = send("add", url.Values{"choice": choice[1:], "key0": {"codeforge"}, "key1": {"inner-canary-of-the-client"}})
	if !strings.Contains(page, "Log in for USER_TOKEN") {
		t.Fatalf("the result: %s", page)
	}
	send("login", url.Values{"name": {"USER_TOKEN"}})
	testkit.WaitFor(t, func() bool { return strings.Contains(p.Output(), "Waiting at") })
	if last := browser.follow(t, address.FindString(p.Output())); !strings.HasPrefix(last, "200") {
		t.Fatalf("the last page: %s", last)
	}
	testkit.WaitFor(t, func() bool { return strings.Contains(read(browser.Get(at)), "USER_TOKEN is logged in.") })
	if got := asking(t, w, "/me", "USER_TOKEN"); got != `200 {"sub":"ann","email":"ann@example.com"}` {
		t.Errorf("the code got %s", got)
	}
	send("done", nil)
	if code, err := p.Wait(testkit.Patience); err != nil || code != 0 || strings.Contains(p.Output(), "inner-canary") {
		t.Errorf("exit %d, %v: %s", code, err, p.Output())
	}
}
