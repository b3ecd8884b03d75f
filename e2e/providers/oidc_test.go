package providers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/codeforge-mcp/codeforge/e2e/upstream"
	"github.com/codeforge-mcp/codeforge/e2e/world"
	"github.com/codeforge-mcp/codeforge/internal/testkit"
)

// issuer is where the OpenID provider is.
const issuer = "c.wild.test"

// person is somebody with a browser, who fills in every form.
type person struct{ http.Client }

func newPerson(t *testing.T) *person {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testkit.Must(t, err)
	return &person{http.Client{Jar: jar, Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: insecure(), // the tests' own upstream
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, port, _ := net.SplitHostPort(address); host == issuer {
				address = net.JoinHostPort(upstream.Embedded.Private.String(), port)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}}
}

// follow opens an address, fills in the forms that come, and returns the text of the last page.
func (p *person) follow(t *testing.T, address string) string {
	t.Helper()
	resp, err := p.Get(address)
	for range 10 {
		testkit.Must(t, err)
		page, err2 := io.ReadAll(resp.Body)
		testkit.Must(t, errors.Join(err2, resp.Body.Close()))
		action, form := formOf(string(page))
		if form == nil {
			return fmt.Sprintf("%d %s", resp.StatusCode, page)
		}
		to, err2 := resp.Request.URL.Parse(action)
		testkit.Must(t, err2)
		resp, err = p.PostForm(to.String(), form)
	}
	t.Fatal("one form after the other")
	return ""
}

// formOf is the first form of a page as a person sends it.
func formOf(page string) (action string, form url.Values) {
	node, err := html.Parse(strings.NewReader(page))
	if err != nil {
		return "", nil
	}
	for n := range node.Descendants() {
		attr := func(name string) string {
			for _, a := range n.Attr {
				if a.Key == name {
					return a.Val
				}
			}
			return ""
		}
		switch {
		case n.Type != html.ElementNode:
		case n.Data == "form" && form == nil:
			action, form = attr("action"), url.Values{}
		case n.Data == "input" && form != nil && attr("type") != "submit" && attr("name") != "":
			form.Set(attr("name"), attr("value"))
			if attr("value") == "" {
				form.Set(attr("name"), "ann")
			}
		}
	}
	return action, form
}

// TestOpenIDProvider: a person logs in at a real provider in a browser, and by device; the token it gives is used,
// renewed with its rotating refresh token after a refusal, survives a restart, and ends with a logout.
func TestOpenIDProvider(t *testing.T) {
	embedded(t)
	folder := modules(t, "oidc")
	dir := t.TempDir()
	script, err := os.ReadFile("testdata/oidc.mjs")
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "oidc.mjs"), script, 0o600))
	testkit.Must(t, os.Symlink(folder, filepath.Join(dir, "node_modules")))
	socket := filepath.Join(dir, "oidc.sock")
	s := start(t, socket, dir, "node", "oidc.mjs", "https://"+issuer, socket)
	oauth := func(more map[string]any) map[string]any {
		config := map[string]any{
			"token_url": "https://" + issuer + "/token", "auth_url": "https://" + issuer + "/auth", "device_url": "https://" + issuer + "/device/auth",
			"client_id": "codeforge", "client_secret": "inner-canary-of-the-client", "scopes": []string{"openid", "offline_access", "email"},
			"params": map[string]string{"prompt": "consent"},
		}
		for k, v := range more {
			config[k] = v
		}
		return map[string]any{"oauth2": config}
	}
	api := world.API{Name: "idp", Config: map[string]any{
		"description": "who the user is", "domains": []string{issuer}, "ca_file": "ca.pem",
		"allow_private": []string{upstream.Embedded.Private.String() + "/32"},
		"credentials":   map[string]any{"USER_TOKEN": oauth(nil), "OTHER_USER_TOKEN": oauth(nil)},
	}}
	w := world.Start(t, world.Config{APIs: []world.API{api}, Hosts: map[string]http.Handler{issuer: s}})
	ask := func(name string) string {
		t.Helper()
		return strings.TrimSpace(w.MustExecute(t, fmt.Sprintf(`const r = await fetch("https://%s/me", { headers: { Authorization: "Bearer %s" } });
			console.log(r.status, await r.text());`, issuer, name)).Out)
	}
	if got := ask("USER_TOKEN"); !strings.Contains(got, "login_needed") || len(s.said("access_token")) != 0 {
		t.Fatalf("before the login: %s", got)
	}
	for name, flag := range map[string]string{"USER_TOKEN": "--no-browser", "OTHER_USER_TOKEN": "--device"} {
		if page := login(t, w, name, flag); !strings.HasPrefix(page, "200") {
			t.Fatalf("%s: the last page: %s", flag, page)
		}
		if got := ask(name); got != `200 {"sub":"ann","email":"ann@example.com"}` {
			t.Errorf("%s: %s", flag, got)
		}
	}
	s.post(t, "/revoke")
	for _, name := range []string{"USER_TOKEN", "OTHER_USER_TOKEN"} { // each with a refresh token that is good once
		refreshed := len(s.said("refresh_token"))
		if got := ask(name); got != `200 {"sub":"ann","email":"ann@example.com"}` || len(s.said("refresh_token")) != refreshed+1 {
			t.Errorf("%s after a refusal: %s, %d refresh tokens; refused %v", name, got, len(s.said("refresh_token"))-refreshed, s.said("refused"))
		}
	}
	for _, kind := range []string{"access_token", "refresh_token"} {
		if len(s.said(kind)) < 3 {
			t.Errorf("%d of %s", len(s.said(kind)), kind)
		}
		for _, token := range s.said(kind) {
			for where, text := range map[string]string{"the log": w.Logs(), "a result": ask("USER_TOKEN") + ask("OTHER_USER_TOKEN")} {
				if strings.Contains(text, token) {
					t.Errorf("%s shows an %s", where, kind)
				}
			}
			outside(t, w, token)
		}
	}
	out, code, err := world.Tool(t.Context(), command(w, "logout", "USER_TOKEN"))
	if got := ask("USER_TOKEN"); err != nil || code != 0 || !strings.Contains(got, "login_needed") {
		t.Errorf("after the logout: %d %s %v: %s", code, out, err, got)
	}
}

// command is a codeforge command about the world's own CodeForge.
func command(w *world.World, args ...string) world.Command {
	return world.Command{Dir: w.Dir, Args: append(args, "--state", w.Process.State)}
}

var (
	address = regexp.MustCompile(`https://\S+`)
	code    = regexp.MustCompile(`enter the code (\S+)`)
)

// login runs codeforge login while a person does what it says, and returns the last page that the person sees.
func login(t *testing.T, w *world.World, name, flag string) string {
	t.Helper()
	p, err := world.Launch(command(w, "login", name, flag))
	testkit.Must(t, err)
	var at string
	testkit.WaitFor(t, func() bool {
		at = address.FindString(p.Output())
		select {
		case <-p.Done():
			t.Fatalf("codeforge login %s: %s", flag, p.Output())
		default:
		}
		return at != "" && strings.Contains(p.Output(), "Ctrl-C")
	})
	if found := code.FindStringSubmatch(p.Output()); found != nil {
		at += "?user_code=" + found[1]
	}
	page := newPerson(t).follow(t, at)
	if exit, err := p.Wait(testkit.Patience); err != nil || exit != 0 || !strings.Contains(p.Output(), name+" is logged in.") {
		t.Fatalf("codeforge login %s: %d, %v: %s\n%s", flag, exit, err, p.Output(), page)
	}
	return page
}

// outside fails if a token is in a file of CodeForge's that is not the proxy's own.
func outside(t *testing.T, w *world.World, token string) {
	t.Helper()
	err := filepath.WalkDir(w.Dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(filepath.Dir(path)) == "tokens" {
			return nil //nolint:nilerr // gone meanwhile
		}
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), token) {
			t.Errorf("%s shows a token", path)
		}
		return nil
	})
	testkit.Must(t, err)
}
